package snapshot

import "github.com/forkd/forkd/internal/store/layer"

// Sizes is what an image of a snapshot takes, in bytes.
type Sizes struct {
	Logical  int64 // as its children see it
	Physical int64 // on the disk, all layers of its chain
	Own      int64 // of them those that the snapshot below has not
}

// Sizes measures a snapshot's memory, and its disks of layers together.
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
			if n, err := s.layers.Bytes(id); err == nil { // one that is missing is told elsewhere
				total += n
			}
		}
		return total
	}
	return Sizes{Logical: logical, Physical: sum(c.Layers), Own: sum(c.Layers[len(c.Layers)-c.Own:])}
}
