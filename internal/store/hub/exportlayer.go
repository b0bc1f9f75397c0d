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
	of := Parts{Head: layer.ContentOffset, Body: h.DataBytes}
	of.Tail = h.FileBytes() - of.Head - of.Body
	digests, err := s.Layers.Digests(id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return s.send(ctx, layerPrefix+id.String(), h.File(), of, func(t *Table) error {
		if digests == nil {
			return nil
		}
		for i, sum := range t.bodySums() {
			if digests.Chunk(i) != sum {
				return fmt.Errorf("%w: its content changed since it was written, near byte %d", layer.ErrDamaged, i*ChunkBytes)
			}
		}
		return nil
	})
}
