package tenancy

import (
	"context"
	"io"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// ExportSnapshot sends one of the tenant's own snapshots.
func (v snapshotView) ExportSnapshot(ctx context.Context, req sandbox.ExportRequest, w io.Writer) error {
	if !v.lens.p.Operator() {
		b, err := v.lens.findOwn(req.Tag)
		if err != nil {
			return err
		}
		req.Tag = b.Tag
	}
	return v.lens.engine.Snapshots.ExportSnapshot(ctx, req, w)
}

// ImportSnapshot makes a snapshot of the tenant from a stream.
func (v snapshotView) ImportSnapshot(ctx context.Context, req sandbox.ImportRequest,
	r io.Reader) (sandbox.SnapshotInfo, error) {
	if v.lens.p.Operator() {
		return v.lens.engine.Snapshots.ImportSnapshot(ctx, req, r)
	}
	var err error
	if req.Tag, err = v.lens.newTag(req.Tag); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if err := v.lens.roomOnDisk(ctx); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer v.lens.diskChanged()
	req.Owner = v.lens.p.Tenant
	info, err := v.lens.engine.Snapshots.ImportSnapshot(ctx, req, r)
	return v.lens.shown(info), err
}

// OpenBlobs opens one of the tenant's snapshots, or a public one: a tenant can fork it, which reads the same.
func (v snapshotView) OpenBlobs(ctx context.Context, req sandbox.ExportRequest) (sandbox.Blobs, error) {
	b, err := v.lens.find(req.Tag)
	if err != nil {
		return nil, err
	}
	req.Tag = b.Tag
	return v.lens.engine.Snapshots.OpenBlobs(ctx, req)
}
