package tenancy

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
)

// LabelSandbox changes a sandbox's labels.
func (v labelView) LabelSandbox(ctx context.Context, id string, change labels.Change) (sandbox.Info, error) {
	if err := sandbox.CheckGivenChange(change); err != nil {
		return sandbox.Info{}, err
	}
	if err := v.lens.mine(id); err != nil {
		return sandbox.Info{}, err
	}
	return v.lens.engine.Labels.LabelSandbox(ctx, id, change)
}

// LabelSnapshot changes the labels of one of the tenant's own snapshots.
func (v labelView) LabelSnapshot(ctx context.Context, tag string,
	change labels.Change) (sandbox.SnapshotInfo, error) {
	if err := sandbox.CheckGivenChange(change); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	b, err := v.lens.findOwn(tag)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if err := v.lens.boundChange(ctx, b.Tag, change); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	info, err := v.lens.engine.Labels.LabelSnapshot(ctx, b.Tag, change)
	return v.lens.shown(info), err
}

// PruneSnapshots removes due snapshots. A tenant's key reaches its own, and only the operator all.
func (v labelView) PruneSnapshots(ctx context.Context, req sandbox.PruneRequest) (sandbox.PruneReport, error) {
	if !v.lens.p.Operator() {
		req.Sees = v.lens.p.Sees
		defer v.lens.diskChanged()
	}
	return v.lens.engine.Labels.PruneSnapshots(ctx, req)
}
