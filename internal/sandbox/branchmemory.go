package sandbox

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/forkd/forkd/internal/hotset"
	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/snapshot"
)

// layMemory makes a layer of what the VMM has captured, over the layers that the
// sandbox's memory maps.
func (w *branching) layMemory(ctx context.Context) (snapshot.Chain, error) {
	own, err := w.ownPages()
	if err != nil {
		return snapshot.Chain{}, err
	}
	below := w.src.files.Memory
	k := w.draft.Stack(layer.Memory, below.Size(), snapshot.MemoryLimits, below.Layers()...)
	err = k.Diff(ctx, own, w.memory)
	if err == nil && w.req.Mode == BranchFull {
		err = k.Flatten(ctx, nil)
	}
	if err == nil {
		err = k.Bound(ctx)
	}
	c := k.Chain()
	c.Own = c.OwnSince(w.src.files.Manifest.Memory)
	return c, err
}

// ownPages reads the VMM's account of what it wrote.
func (w *branching) ownPages() ([]layer.Run, error) {
	set, err := hotset.Read(w.index, w.src.shape().MemoryBytes())
	if err != nil {
		return nil, fmt.Errorf("read the capture's index: %w", err)
	}
	var out []layer.Run
	for r := range set.Runs() {
		out = append(out, layer.Run{Offset: r.Offset, Length: r.Length})
	}
	return out, nil
}

// adoptHot takes the parent's hot set: what children touch first is the same.
func (w *branching) adoptHot() error {
	if w.src.hot == nil {
		return nil
	}
	return w.draft.Adopt(snapshot.HotFile, filepath.Join(w.e.store.Dir(w.base), snapshot.HotFile))
}
