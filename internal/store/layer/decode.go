package layer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
)

// Layer is an open layer: its checked index and its file. It is safe for concurrent use. The caller closes the
// file.
type Layer struct {
	Info
	file *os.File
	runs []run
}

// Open reads and checks a layer's header and index, but not its content. The file must not change while the layer
// is used.
func Open(f *os.File) (*Layer, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open layer: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("open layer %s: %w: not a regular file", f.Name(), ErrFormat)
	}
	info, runs, err := decode(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("open layer %s: %w", f.Name(), err)
	}
	return &Layer{Info: info, file: f, runs: runs}, nil
}

// File returns the layer's file, to map it or pass it on. It must only be read, and only by offset, because its
// file position is shared.
func (l *Layer) File() *os.File { return l.file }

// Extents returns the layer's runs as extents of its file, in ascending order.
func (l *Layer) Extents() []extent.Extent {
	out := make([]extent.Extent, len(l.runs))
	for i, r := range l.runs {
		out[i] = extent.Extent{Offset: r.Offset, Length: r.Length}
		if !r.Zero {
			out[i].File, out[i].FileOffset = l.file, r.FileOffset
		}
	}
	return out
}

// Probe reads and checks the header of a layer of size bytes. It also checks the size against the header.
func Probe(r io.ReaderAt, size int64) (Info, error) {
	info, _, err := probe(r, size)
	return info, err
}

func probe(r io.ReaderAt, size int64) (info Info, indexSum uint32, err error) {
	head := make([]byte, headerSize)
	if err := readFull(r, head, 0); err != nil {
		return Info{}, 0, err
	}
	if info, indexSum, err = decodeHeader(head); err != nil {
		return Info{}, 0, err
	}
	if size != info.FileBytes() {
		return Info{}, 0, damaged("it has %d bytes, want %d", size, info.FileBytes())
	}
	return info, indexSum, nil
}

// decode reads and checks the header and index of a layer of size bytes. It reads at most 516 KiB, regardless of
// the header.
func decode(r io.ReaderAt, size int64) (Info, []run, error) {
	info, sum, err := probe(r, size)
	if err != nil {
		return Info{}, nil, err
	}
	index := make([]byte, info.RunCount*runSize)
	if err := readFull(r, index, info.indexOffset()); err != nil {
		return Info{}, nil, err
	}
	if crc32.ChecksumIEEE(index) != sum {
		return Info{}, nil, damaged("the checksum of its index is wrong")
	}
	runs, err := decodeIndex(info, index)
	return info, runs, err
}

func decodeHeader(b []byte) (info Info, indexSum uint32, err error) {
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	if string(b[:8]) != magic {
		return info, 0, ErrFormat
	}
	if v := u32(b[8:]); v != Version {
		return info, 0, fmt.Errorf("%w: it has version %d, this forkd reads version %d; use the forkd that wrote it",
			ErrFormat, v, Version)
	}
	if crc32.ChecksumIEEE(b[:headerSize-4]) != u32(b[headerSize-4:]) {
		return info, 0, damaged("the checksum of its header is wrong")
	}
	info.Kind = Kind(u32(b[12:]))
	info.ID, info.Parent, info.View = ID(b[16:32]), ID(b[32:48]), ID(b[48:64])
	info.Size = int64(u64(b[64:]))
	if err := info.check(); err != nil {
		return info, 0, damaged("%w", err)
	}
	runs, data := u32(b[76:]), u64(b[80:])
	switch {
	case u32(b[72:]) != BlockSize:
		err = damaged("it has blocks of %d bytes, want %d", u32(b[72:]), BlockSize)
	case runs > MaxRuns:
		err = damaged("it has %d runs, want at most %d", runs, MaxRuns)
	case data > uint64(info.Size) || data%BlockSize != 0:
		err = damaged("it has %d bytes of content of an image of %d", data, info.Size)
	case !bytes.Equal(b[headerUsed:headerSize-4], zeroBlock[headerUsed:headerSize-4]):
		err = damaged("its header says more than this version knows")
	}
	info.RunCount, info.DataBytes = int(runs), int64(data)
	return info, u32(b[88:]), err
}

// decodeIndex accepts only the canonical form: runs ascend, lie within the image and are not adjacent to a run of
// the same kind, and their content lies in the file without gaps.
func decodeIndex(info Info, b []byte) ([]run, error) {
	runs := make([]run, 0, info.RunCount)
	prev, content := run{}, int64(headerSize)
	for ; len(b) > 0; b = b[runSize:] {
		r, err := decodeRun(b)
		if err != nil {
			return nil, err
		}
		want := int64(0)
		if !r.Zero {
			want = content
		}
		switch {
		case r.Offset < prev.end() || r.Offset > info.Size-r.Length:
			return nil, damaged("a run of %d bytes at %d, behind %d, in an image of %d",
				r.Length, r.Offset, prev.end(), info.Size)
		case len(runs) > 0 && prev.touches(r):
			return nil, damaged("the run at %d goes on where the one before ends", r.Offset)
		case r.FileOffset != want:
			return nil, damaged("the content of the run at %d is at %d, want %d", r.Offset, r.FileOffset, want)
		}
		if !r.Zero {
			content += r.Length
		}
		runs, prev = append(runs, r), r
	}
	if content != info.indexOffset() {
		return nil, damaged("its runs hold %d bytes, its header says %d", content-headerSize, info.DataBytes)
	}
	return runs, nil
}

func decodeRun(b []byte) (run, error) {
	offset, length, at := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]),
		binary.LittleEndian.Uint64(b[16:])
	kind, rest := binary.LittleEndian.Uint32(b[24:]), binary.LittleEndian.Uint32(b[28:])
	// Bound each value first, so that no sum overflows.
	if offset > MaxSize || length == 0 || length > MaxSize || at > headerSize+MaxSize ||
		(offset|length|at)%BlockSize != 0 {
		return run{}, damaged("a run of %d bytes at %d, content at %d", length, offset, at)
	}
	if (kind != runData && kind != runZero) || rest != 0 {
		return run{}, damaged("the run at %d is of an unknown type", offset)
	}
	return run{Offset: int64(offset), Length: int64(length), FileOffset: int64(at), Zero: kind == runZero}, nil
}

// readFull distinguishes a truncated file from a read error.
func readFull(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return damaged("it is cut short")
	}
	return err
}
