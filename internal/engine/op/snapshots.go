package op

import (
	"context"

	"github.com/forkd/forkd/internal/sandbox"
)

// ListSnapshots returns all snapshots by tag: those that are being written and
// those that are damaged, too.
func (o *Ops) ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error) {
	return o.catalog.List(ctx)
}

// SnapshotInfo describes one snapshot.
func (o *Ops) SnapshotInfo(_ context.Context, tag string) (sandbox.SnapshotInfo, error) {
	return o.catalog.Get(tag)
}

// VerifySnapshot reads a snapshot whole and compares it with its digests.
// Damage is told in the report; it is not an error.
func (o *Ops) VerifySnapshot(ctx context.Context, tag string) (sandbox.VerifyReport, error) {
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.VerifyReport{}, err
	}
	defer done()
	return o.catalog.Verify(ctx, tag)
}

// CollectLayers removes layers that nothing needs; with dryRun it only says which.
func (o *Ops) CollectLayers(ctx context.Context, dryRun bool) (sandbox.CollectReport, error) {
	_, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.CollectReport{}, err
	}
	defer done()
	return o.catalog.Collect(dryRun)
}
