package snapshot

import (
	"context"
	"fmt"
	"io"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// Limits bound a chain, because each layer is an open file, and each extent a mapping (or a part of a disk), in
// every child.
type Limits struct {
	Layers  int // of the chain
	Extents int // of the flattened chain
	Runs    int // of the merged layer, if a chain exceeds the limits
}

// The limits for chains written by this package. A merged layer leaves room for some more diffs, so that not
// every branch has to merge again.
var (
	MemoryLimits = Limits{Layers: 32, Extents: 512, Runs: 128}
	DiskLimits   = Limits{Layers: 32, Extents: 1024, Runs: 256}
)

// flatRuns limits the runs of a flattened base. Every child maps it, and zeros in it take no space.
const flatRuns = 8

// Base begins the base layer of an image. The caller writes the content into its file, from the file's present
// position on, and then calls Place.
func (d *Draft) Base(kind layer.Kind, size int64) (*store.Draft, error) {
	base, err := d.store.layers.Create(layer.Spec{Kind: kind, Size: size}, store.DraftOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := base.File().Seek(layer.ContentOffset, io.SeekStart); err != nil {
		base.Discard()
		return nil, fmt.Errorf("create layer: %w", err)
	}
	return base, nil
}

// Place commits the base with the content written by the caller.
func (d *Draft) Place(base *store.Draft) (Chain, error) {
	err := base.Placed()
	if err != nil {
		base.Discard()
		return Chain{}, err
	}
	h, err := base.Commit()
	if err != nil {
		return Chain{}, err
	}
	d.Keep(h)
	return Chain{Layers: []layer.ID{h.ID}, Own: 1}, nil
}

// Stack is an image of a snapshot being made: layers from below, and layers added on top. It is not safe for
// concurrent use.
type Stack struct {
	d      *Draft
	kind   layer.Kind
	size   int64
	limits Limits
	layers []*layer.Layer // base first
	own    int            // number of added layers, from the top
}

// Stack begins with layers that the caller keeps open until the snapshot is committed. Without layers, the image
// is all zeros.
func (d *Draft) Stack(kind layer.Kind, size int64, limits Limits, below ...*layer.Layer) *Stack {
	return &Stack{d: d, kind: kind, size: size, limits: limits, layers: below[:len(below):len(below)]}
}

// Diff adds a layer of the written extents (layer.Writer.Diff). It makes at most one durable file. If the list is
// empty, it adds no layer, unless the stack is empty.
func (k *Stack) Diff(ctx context.Context, written []extent.Extent) error {
	if len(written) == 0 && len(k.layers) > 0 {
		return nil
	}
	var below *layer.Image
	spec := layer.Spec{Kind: k.kind, Size: k.size}
	if len(k.layers) > 0 {
		var err error
		if below, err = layer.Assemble(k.layers); err != nil {
			return err
		}
		spec.Parent = below.View()
	}
	d, err := k.d.store.layers.Create(spec, store.DraftOptions{Bytes: dataBytes(written)})
	if err != nil {
		return err
	}
	defer d.Discard()
	if err := d.Diff(ctx, written, below, layer.MaxRuns/2); err != nil {
		return err
	}
	h, err := d.Commit()
	if err != nil {
		return err
	}
	k.d.Keep(h)
	k.layers, k.own = append(k.layers, h.Layer), k.own+1
	return nil
}

func dataBytes(written []extent.Extent) (n int64) {
	for _, e := range written {
		if !e.Zero() {
			n += e.Length
		}
	}
	return n
}

// Bound keeps the stack within its limits. If it exceeds them, all layers above the base become one.
func (k *Stack) Bound(ctx context.Context) error {
	if len(k.layers) < 3 {
		return nil // a single diff is already joined as far as worthwhile
	}
	image, err := layer.Assemble(k.layers)
	if err != nil {
		return err
	}
	if len(k.layers) <= k.limits.Layers && len(image.Extents()) <= k.limits.Extents {
		return nil
	}
	return k.merge(ctx, 1, k.limits.Runs, nil)
}

// Flatten merges the stack into a single base, which shares no layers. progress reports bytes of content,
// including holes; it may be nil.
func (k *Stack) Flatten(ctx context.Context, progress func(done, total int64)) error {
	if len(k.layers) == 0 {
		return nil
	}
	return k.merge(ctx, 0, flatRuns, progress)
}

func (k *Stack) merge(ctx context.Context, from, runs int, progress func(done, total int64)) error {
	h, err := k.d.store.layers.Compact(ctx, k.layers, from, len(k.layers), runs, progress)
	if err != nil {
		return err
	}
	k.d.Keep(h)
	k.layers, k.own = append(k.layers[:from:from], h.Layer), 1
	return nil
}

// Layers returns the stack, base first. The caller must not modify it.
func (k *Stack) Layers() []*layer.Layer { return k.layers }

// Chain returns the stack in the manifest's form.
func (k *Stack) Chain() Chain {
	c := Chain{Own: k.own}
	for _, l := range k.layers {
		c.Layers = append(c.Layers, l.ID)
	}
	return c
}
