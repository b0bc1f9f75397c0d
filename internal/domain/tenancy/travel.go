package tenancy

import (
	"context"
	"io"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// ExportSnapshot sends one of the tenant's own snapshots.
func (v snapshotView) ExportSnapshot(ctx context.Context, req sandbox.ExportRequest, w io.Writer) error {
	if !v.p.Operator() {
		b, err := v.findOwn(req.Tag)
		if err != nil {
			return err
		}
		req.Tag = b.Tag
	}
	return v.engine.ExportSnapshot(ctx, req, w)
}

// ImportSnapshot makes a snapshot of the tenant from a stream.
func (v snapshotView) ImportSnapshot(ctx context.Context, req sandbox.ImportRequest,
	r io.Reader) (sandbox.SnapshotInfo, error) {
	if v.p.Operator() {
		return v.engine.ImportSnapshot(ctx, req, r)
	}
	var err error
	if req.Tag, err = v.newTag(req.Tag); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if err := v.roomOnDisk(ctx); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer v.diskChanged()
	req.Owner = v.p.Tenant
	info, err := v.engine.ImportSnapshot(ctx, req, r)
	return v.shown(info), err
}

// OpenBlobs opens one of the tenant's snapshots, or a public one: a tenant can fork it, which reads the same.
func (v snapshotView) OpenBlobs(ctx context.Context, req sandbox.ExportRequest) (sandbox.Blobs, error) {
	b, err := v.find(req.Tag)
	if err != nil {
		return nil, err
	}
	req.Tag = b.Tag
	return v.engine.OpenBlobs(ctx, req)
}
