package op

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// booted reports whether the sandbox's guest booted in its VM. Its memory then shares no pages with
// the snapshot it came from.
func (w *branchOp) booted() bool { return w.b.Info().Cold }

// layMemory makes a layer of the captured memory over the layers the sandbox's memory maps. A
// booted sandbox maps no layers: its capture is the whole memory.
func (w *branchOp) layMemory(ctx context.Context) (snapshot.Chain, error) {
	own, err := w.dirtyPages()
	if err != nil {
		return snapshot.Chain{}, err
	}
	below := w.src.Files.Memory
	under := below.Layers()
	if w.booted() {
		under = nil
	}
	k := w.draft.Stack(layer.Memory, below.Size(), snapshot.MemoryLimits, under...)
	err = k.Diff(ctx, own)
	if err == nil && (w.req.Mode == sandbox.BranchFull || w.booted()) { // gives its children few mappings
		err = k.Flatten(ctx, nil)
	}
	if err == nil {
		err = k.Bound(ctx)
	}
	c := k.Chain()
	c.Own = c.OwnSince(w.src.Files.Manifest.Memory)
	return c, err
}

// dirtyPages returns the extents captured by the VMM.
func (w *branchOp) dirtyPages() ([]extent.Extent, error) {
	set, err := extent.DecodePageSet(w.index, w.src.Shape().MemoryBytes())
	if err != nil {
		return nil, fmt.Errorf("read the capture's index: %w", err)
	}
	var out []extent.Extent
	for r := range set.Runs() {
		out = append(out, extent.Extent{File: w.memory, FileOffset: r.Offset, Offset: r.Offset, Length: r.Length})
	}
	return out, nil
}
