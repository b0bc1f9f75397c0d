package engine

import (
	"context"

	"github.com/forkd/forkd/internal/sandbox"
)

// ListSnapshots returns all snapshots by tag: those that are being written and
// those that are damaged, too.
func (e *Engine) ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error) {
	return e.catalog.List(ctx)
}

// SnapshotInfo describes one snapshot.
func (e *Engine) SnapshotInfo(_ context.Context, tag string) (sandbox.SnapshotInfo, error) {
	return e.catalog.Get(tag)
}

// DeleteSnapshot deletes a snapshot that nothing depends on; see DeleteOptions
// for the others. Sandboxes that run from a deleted one live on.
func (e *Engine) DeleteSnapshot(ctx context.Context, tag string, o sandbox.DeleteOptions) error {
	_, done, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := e.catalog.Delete(tag, o); err != nil {
		return err
	}
	e.guests.kick() // what it was built on may be needed no more
	return nil
}

// VerifySnapshot reads a snapshot whole and compares it with its digests.
// Damage is told in the report; it is not an error.
func (e *Engine) VerifySnapshot(ctx context.Context, tag string) (sandbox.VerifyReport, error) {
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return sandbox.VerifyReport{}, err
	}
	defer done()
	return e.catalog.Verify(ctx, tag)
}

// CollectLayers removes layers that nothing needs; with dryRun it only says which.
func (e *Engine) CollectLayers(ctx context.Context, dryRun bool) (sandbox.CollectReport, error) {
	_, done, err := e.begin(ctx)
	if err != nil {
		return sandbox.CollectReport{}, err
	}
	defer done()
	return e.catalog.Collect(dryRun)
}
