package tenancy

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
)

// LabelSandbox changes a sandbox's labels.
func (v sandboxView) LabelSandbox(ctx context.Context, id string, change labels.Change) (sandbox.Info, error) {
	if err := v.mine(id); err != nil {
		return sandbox.Info{}, err
	}
	return v.engine.LabelSandbox(ctx, id, change)
}

// LabelSnapshot changes the labels of one of the tenant's own snapshots.
func (v snapshotView) LabelSnapshot(ctx context.Context, tag string,
	change labels.Change) (sandbox.SnapshotInfo, error) {
	b, err := v.findOwn(tag)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if err := v.boundChange(ctx, b.Tag, change); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	info, err := v.engine.LabelSnapshot(ctx, b.Tag, change)
	return v.shown(info), err
}

// PruneSnapshots removes due snapshots. A tenant's key reaches its own, and only the operator all.
func (v snapshotView) PruneSnapshots(ctx context.Context, req sandbox.PruneRequest) (sandbox.PruneReport, error) {
	if !v.p.Operator() {
		req.Sees = v.p.Sees
		defer v.diskChanged()
	}
	return v.engine.PruneSnapshots(ctx, req)
}
