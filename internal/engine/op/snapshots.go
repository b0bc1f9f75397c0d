package op

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/sandboxes"
)

// Accounts reports snapshots and sandboxes, and their owners.
type Accounts struct {
	catalog   *catalog.Catalog
	sandboxes *sandboxes.Table
}

// ListSnapshots returns all snapshots by tag, including those being written and damaged ones.
func (o Accounts) ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error) {
	return o.catalog.List(ctx)
}

// SnapshotInfo describes one snapshot.
func (o Accounts) SnapshotInfo(_ context.Context, tag string) (sandbox.SnapshotInfo, error) {
	return o.catalog.Get(tag)
}

// SnapshotBrief returns a snapshot's owner and little more.
func (o Accounts) SnapshotBrief(tag string) (sandbox.SnapshotBrief, error) {
	return o.catalog.Brief(tag)
}

// Holdings returns the number of an owner's running sandboxes, and their guest memory in MiB.
func (o Accounts) Holdings(owner string) (n, memoryMiB int) {
	for _, i := range o.sandboxes.List() {
		if i.Owner == owner && i.Status != sandbox.StatusFailed {
			n, memoryMiB = n+1, memoryMiB+i.Shape.MemoryMiB
		}
	}
	return n, memoryMiB
}

// OverlayBytes returns the disk space now used by an owner's sandboxes for their disk writes.
func (o Accounts) OverlayBytes(owner string) int64 { return o.sandboxes.OverlayBytes(owner) }

// VerifySnapshot reads a whole snapshot and compares it with its digests. The report lists damage;
// damage is not an error.
func (o *Ops) VerifySnapshot(ctx context.Context, tag string) (sandbox.VerifyReport, error) {
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.VerifyReport{}, err
	}
	defer done()
	return o.catalog.Verify(ctx, tag)
}

// CollectLayers removes unused layers. With dryRun it only lists them.
func (o *Ops) CollectLayers(ctx context.Context, dryRun bool) (sandbox.CollectReport, error) {
	_, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.CollectReport{}, err
	}
	defer done()
	return o.catalog.Collect(dryRun)
}
