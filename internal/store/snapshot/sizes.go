package snapshot

import "github.com/forkd/forkd/internal/store/layer"

// Sizes is the size of a snapshot's image, in bytes.
type Sizes struct {
	Logical  int64 // as seen by its children
	Physical int64 // on disk, for all layers of its chain
	Own      int64 // part of Physical in layers that the parent snapshot does not have
}

// Sizes returns the sizes of a snapshot's memory, and of its disks with layers together.
func (s *Store) Sizes(m *Manifest) (memory, disks Sizes) {
	memory = s.sizes(m.Memory, m.Shape.MemoryBytes())
	for _, d := range m.Disks {
		if len(d.Layers) == 0 {
			continue
		}
		one := s.sizes(d.Chain, d.Bytes)
		disks.Logical, disks.Physical, disks.Own = disks.Logical+one.Logical, disks.Physical+one.Physical, disks.Own+one.Own
	}
	return memory, disks
}

func (s *Store) sizes(c Chain, logical int64) Sizes {
	sum := func(ids []layer.ID) (total int64) {
		for _, id := range ids {
			if n, err := s.layers.Bytes(id); err == nil { // a missing layer is reported elsewhere
				total += n
			}
		}
		return total
	}
	return Sizes{Logical: logical, Physical: sum(c.Layers), Own: sum(c.Layers[len(c.Layers)-c.Own:])}
}
