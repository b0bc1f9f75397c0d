package layer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Version is the format version. The package reads no other version.
const Version = 2

const (
	// BlockSize is the unit of all offsets and lengths: a page of memory, a block of a disk.
	BlockSize = 4096
	// MaxSize limits the size of the whole image, in bytes.
	MaxSize = 1 << 40
	// MaxRuns limits a layer's index. Each data run becomes a mapping in each child, with another mapping between
	// two runs. Linux allows a process 65530 mappings.
	MaxRuns = 1 << 14
)

const (
	magic      = "FORKDLYR"
	headerSize = BlockSize // aligns the data to pages
	headerUsed = 92
	runSize    = 32
	runData    = 1
	runZero    = 2
)

// Kind is the kind of image that a layer belongs to.
type Kind uint32

// The kinds of images.
const (
	Memory Kind = 1 // guest memory in linear order
	Disk   Kind = 2
)

func (k Kind) String() string {
	switch k {
	case Memory:
		return "memory"
	case Disk:
		return "disk"
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// Spec describes a layer before it has content.
type Spec struct {
	// ID identifies the layer.
	ID ID
	// Parent is the view below the layer; zero for a base.
	Parent ID
	// View identifies the image seen through the layer and all layers below: it is the ID of the layer that first
	// showed it. A compacted layer has the view of the last layer that it replaces. So all layers above that
	// layer also fit above the compacted one.
	View ID
	// Kind is the kind of the layer's image.
	Kind Kind
	// Size is the size of the whole image, in bytes.
	Size int64
}

func (s Spec) check() error {
	switch {
	case s.ID.IsZero() || s.View.IsZero():
		return fmt.Errorf("ID %s and view %s must not be zero", s.ID, s.View)
	case s.Parent == s.ID || s.Parent == s.View:
		return fmt.Errorf("layer %s with view %s lies over itself", s.ID, s.View)
	case s.Kind != Memory && s.Kind != Disk:
		return fmt.Errorf("%s is unknown", s.Kind)
	case s.Size <= 0 || s.Size > MaxSize || s.Size%BlockSize != 0:
		return fmt.Errorf("image of %d bytes: want a multiple of %d, at most %d", s.Size, BlockSize, int64(MaxSize))
	}
	return nil
}

// Info holds the fields of a layer's header.
type Info struct {
	Spec
	// DataBytes is the size of the stored content.
	DataBytes int64
	// RunCount is the number of entries in the index.
	RunCount int
}

func (i Info) indexOffset() int64 { return headerSize + i.DataBytes }

// FileBytes returns the file's size.
func (i Info) FileBytes() int64 { return i.indexOffset() + int64(i.RunCount)*runSize }

// run is an entry of the index: a part of the image covered by the layer.
type run struct {
	Offset, Length int64 // in the image, bytes
	FileOffset     int64 // of its content; 0 for a zero run
	Zero           bool  // all zeros, without stored content
}

func (r run) end() int64 { return r.Offset + r.Length }

// touches reports whether next continues r as one run.
func (r run) touches(next run) bool { return r.end() == next.Offset && r.Zero == next.Zero }

func encodeHeader(i Info, index []byte) []byte {
	b := make([]byte, 0, headerSize)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = binary.LittleEndian.AppendUint32(b, uint32(i.Kind))
	b = append(b, i.ID[:]...)
	b = append(b, i.Parent[:]...)
	b = append(b, i.View[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(i.Size))
	b = binary.LittleEndian.AppendUint32(b, BlockSize)
	b = binary.LittleEndian.AppendUint32(b, uint32(i.RunCount))
	b = binary.LittleEndian.AppendUint64(b, uint64(i.DataBytes))
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(index))
	b = b[:headerSize]
	binary.LittleEndian.PutUint32(b[headerSize-4:], crc32.ChecksumIEEE(b[:headerSize-4]))
	return b
}

func encodeIndex(runs []run) []byte {
	b := make([]byte, 0, len(runs)*runSize)
	for _, r := range runs {
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Offset))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Length))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.FileOffset))
		kind := uint32(runData)
		if r.Zero {
			kind = runZero
		}
		b = binary.LittleEndian.AppendUint32(b, kind)
		b = binary.LittleEndian.AppendUint32(b, 0)
	}
	return b
}
