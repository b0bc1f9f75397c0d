package layer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Version is the format that this package writes, and the only one it reads.
const Version = 2

const (
	// BlockSize is the unit of everything: a page of memory, a block of a disk.
	BlockSize = 4096
	// MaxSize bounds the image that a layer is a part of, in bytes.
	MaxSize = 1 << 40
	// MaxRuns bounds a layer's index. Each data run becomes a mapping in each
	// child, with another one between them; Linux allows a process 65530.
	MaxRuns = 1 << 14
)

const (
	magic      = "FORKDLYR"
	headerSize = BlockSize // so that data begins on a page
	headerUsed = 92
	runSize    = 32
	runData    = 1
	runZero    = 2
)

// Kind is what a layer is a part of.
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

// Spec is what a layer is, before anything is in it.
type Spec struct {
	// ID names the layer.
	ID ID
	// Parent is the view that the layer lies over; zero for a base.
	Parent ID
	// View names what one sees through the layer and all below it: the ID of the
	// layer that first showed it. A compacted layer takes the view of the last
	// layer that it replaces, so what lies over that one lies over this one too.
	View ID
	// Kind is what the layer is a part of.
	Kind Kind
	// Size is the whole image's, in bytes.
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

// Info is what a layer's header tells.
type Info struct {
	Spec
	// DataBytes is how much content is stored.
	DataBytes int64
	// RunCount is the length of the index.
	RunCount int
}

func (i Info) indexOffset() int64 { return headerSize + i.DataBytes }

// FileBytes is the file's size.
func (i Info) FileBytes() int64 { return i.indexOffset() + int64(i.RunCount)*runSize }

// run is a record of the index: a part of the image that the layer has something to
// say about.
type run struct {
	Offset, Length int64 // in the image, bytes
	FileOffset     int64 // where its content is; 0 for a zero run
	Zero           bool  // all zeros, nothing is stored
}

func (r run) end() int64 { return r.Offset + r.Length }

// touches reports whether next goes on where r ends, as one run.
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
