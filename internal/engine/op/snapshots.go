package op

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/sandboxes"
)

// Accounts say what there is, and whose it is.
type Accounts struct {
	catalog   *catalog.Catalog
	sandboxes *sandboxes.Table
}

// ListSnapshots returns all snapshots by tag: those that are being written and
// those that are damaged, too.
func (o Accounts) ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error) {
	return o.catalog.List(ctx)
}

// SnapshotInfo describes one snapshot.
func (o Accounts) SnapshotInfo(_ context.Context, tag string) (sandbox.SnapshotInfo, error) {
	return o.catalog.Get(tag)
}

// SnapshotBrief says whose a snapshot is, and little more.
func (o Accounts) SnapshotBrief(tag string) (sandbox.SnapshotBrief, error) {
	return o.catalog.Brief(tag)
}

// Holdings are what an owner has running: sandboxes, and MiB of their guests' memory.
func (o Accounts) Holdings(owner string) (n, memoryMiB int) {
	for _, i := range o.sandboxes.List() {
		if i.Owner == owner && i.Status != sandbox.StatusFailed {
			n, memoryMiB = n+1, memoryMiB+i.Shape.MemoryMiB
		}
	}
	return n, memoryMiB
}

// OverlayBytes is what an owner's sandboxes have written to their disks, as it takes room now.
func (o Accounts) OverlayBytes(owner string) int64 { return o.sandboxes.OverlayBytes(owner) }

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
