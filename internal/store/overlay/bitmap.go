package overlay

import (
	"math/bits"
)

// The bitmap is kept in chunks, allocated when their first bit is set. A chunk of 4 KiB covers 128 MiB of disk,
// and an idle child has no chunks.
const (
	chunkBytes = 4096
	chunkBits  = 8 * chunkBytes
)

func chunksOf(blocks int64) int64 { return (blocks + chunkBits - 1) / chunkBits }

// bitmap records the allocated blocks of the overlay. Bits are never cleared, so a partly written chunk is as
// good as an older one.
type bitmap struct {
	blocks int64
	chunks []*chunk
}

type chunk struct {
	bits  [chunkBytes]byte
	dirty bool // has bits that are not on disk
}

func newBitmap(blocks int64) bitmap {
	return bitmap{blocks: blocks, chunks: make([]*chunk, chunksOf(blocks))}
}

// load reads the map from a file.
func (m *bitmap) load(f overlayFile, l layout) error {
	for i := int64(0); i < int64(len(m.chunks)); i++ {
		data, err := f.nextData(l.mapAt()+i*chunkBytes, l.trailerAt())
		if err != nil {
			return err
		}
		if i = (data - l.mapAt()) / chunkBytes; i >= int64(len(m.chunks)) {
			return nil // only holes remain
		}
		c := new(chunk)
		if err := f.readAll([][]byte{c.bits[:]}, l.mapAt()+i*chunkBytes); err != nil {
			return err
		}
		m.chunks[i] = c
	}
	m.trim()
	return nil
}

// trim clears the bits beyond the last block. An undamaged file does not have them set.
func (m *bitmap) trim() {
	last := m.chunks[len(m.chunks)-1]
	if last == nil {
		return
	}
	for b := m.blocks % chunkBits; b != 0 && b < chunkBits; b++ {
		last.bits[b/8] &^= 1 << (b % 8)
	}
}

// save writes the changed chunks. any reports whether there were some.
func (m *bitmap) save(f overlayFile, l layout) (any bool, err error) {
	for i, c := range m.chunks {
		if c == nil || !c.dirty {
			continue
		}
		any = true
		if err := f.writeAll([][]byte{c.bits[:]}, l.mapAt()+int64(i)*chunkBytes); err != nil {
			return any, err
		}
	}
	return any, nil
}

// clean marks the chunks written by save as durable.
func (m *bitmap) clean() {
	for _, c := range m.chunks {
		if c != nil {
			c.dirty = false
		}
	}
}

func (m *bitmap) has(block int64) bool {
	c := m.chunks[block/chunkBits]
	return c != nil && c.bits[block%chunkBits/8]&(1<<(block%8)) != 0
}

// set marks the blocks from first to end as allocated.
func (m *bitmap) set(first, end int64) {
	for b := first; b < end; {
		c := m.chunks[b/chunkBits]
		if c == nil {
			c = new(chunk)
			m.chunks[b/chunkBits] = c
		}
		at := b % chunkBits / 8
		mask := byte(0xff) << (b % 8)
		if next := b&^7 + 8; next > end {
			mask &= 0xff >> (next - end)
		}
		if c.bits[at]&mask != mask {
			c.bits[at] |= mask
			c.dirty = true
		}
		b = b&^7 + 8
	}
}

// run returns the state of the block first, and the next block before end with the other state.
func (m *bitmap) run(first, end int64) (set bool, next int64) {
	set = m.has(first)
	for b := first; b < end; {
		c := m.chunks[b/chunkBits]
		if c == nil {
			if set {
				return set, b
			}
			b = (b/chunkBits + 1) * chunkBits
			continue
		}
		same := c.bits[b%chunkBits/8]
		if set {
			same = ^same
		}
		// In same, a set bit now ends the run.
		if same >>= b % 8; same != 0 {
			return set, min(end, b+int64(bits.TrailingZeros8(same)))
		}
		b = b&^7 + 8
	}
	return set, end
}
