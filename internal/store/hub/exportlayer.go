package hub

import (
	"context"
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// layer sends a layer. If the store has its digests, a layer damaged on the disk is refused.
func (s *sender) layer(ctx context.Context, id layer.ID) error {
	h, err := s.Layers.Get(id)
	if err != nil {
		return err
	}
	defer h.Close()
	return s.send(ctx, layerPrefix+id.String(), h.File(), partsOf(h), s.sound(id))
}

// partsOf returns the parts of a layer's file.
func partsOf(h *store.Handle) Parts {
	of := Parts{Head: layer.ContentOffset, Body: h.DataBytes}
	of.Tail = h.FileBytes() - of.Head - of.Body
	return of
}

// sound returns a function that compares the content of a layer with the store's digests, if there are some.
func (e *Export) sound(id layer.ID) func(*Table) error {
	return func(t *Table) error {
		digests, err := e.Layers.Digests(id)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		for i, sum := range t.bodySums() {
			if digests.Chunk(i) != sum {
				return fmt.Errorf("%w: its content changed since it was written, near byte %d", layer.ErrDamaged, i*ChunkBytes)
			}
		}
		return nil
	}
}
