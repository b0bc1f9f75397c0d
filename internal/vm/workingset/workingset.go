// Package workingset is the format of a snapshot's file `working-set`: the runs of guest memory
// touched by every child before it is ready. They can be populated in bulk instead of one fault at
// a time (docs/inside/formats/working-set.md). It encodes, decodes and checks; it accesses no
// memory. The VMM writes and reads the file. A set is advice and may be wrong. But a decoded set
// always lies within the memory it was decoded for.
package workingset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"github.com/forkd/forkd/internal/store/extent"
)

// Format is the version written by this package, and the only one it reads.
const Format = 2

// MaxRuns limits the runs of a set, MaxSize its file in bytes.
const (
	MaxRuns = 1 << 16
	MaxSize = headerSize + MaxRuns*runSize + sumSize
)

const (
	magic      = "FORKDHOT"
	headerSize = 24 // magic, format, number of runs, pages of memory
	runSize    = 8  // first page, number of pages and the written bit
	sumSize    = 4
	pageSize   = 4096
	writtenBit = 1 << 31
	maxPages   = writtenBit - 1
)

var (
	// ErrFormat is returned if the bytes are not a working set of this format version.
	ErrFormat = errors.New("not a working set of a known format")
	// ErrDamaged reports a truncated file, a wrong checksum, or invalid runs.
	ErrDamaged = errors.New("working set is damaged")
)

// Run is a run of pages of guest memory.
type Run struct {
	extent.Run
	Written bool // the guest writes there; otherwise it only reads
}

// Set is a checked set of runs. It stays encoded to save memory, because each VM has one.
type Set struct{ runs []byte }

// Writer collects runs. The zero value is ready.
type Writer struct {
	body []byte
	next int64 // no run may begin before it
}

// Add appends a run behind the previous ones. Adjacent runs of one kind are merged.
func (w *Writer) Add(r Run) error {
	if r.Offset < w.next || r.Length <= 0 || (r.Offset|r.Length)%pageSize != 0 || r.End()/pageSize > maxPages {
		return fmt.Errorf("add run of %d bytes at %d behind %d to working set: not whole pages in rising order",
			r.Length, r.Offset, w.next)
	}
	if len(w.body) == MaxRuns*runSize && !w.joins(r) {
		return fmt.Errorf("add run to working set: it has %d already", MaxRuns)
	}
	w.put(r)
	return nil
}

// joins reports whether a run continues the last one and has the same kind.
func (w *Writer) joins(r Run) bool {
	last := len(w.body) - runSize
	return last >= 0 && r.Offset == w.next && decodeRun(w.body[last:]).Written == r.Written
}

// put adds a valid run.
func (w *Writer) put(r Run) {
	if w.joins(r) {
		last := len(w.body) - runSize
		prev := decodeRun(w.body[last:])
		r.Offset, r.Length = prev.Offset, prev.Length+r.Length
		w.body = w.body[:last]
	}
	w.next = r.End()
	w.body = binary.LittleEndian.AppendUint32(w.body, uint32(r.Offset/pageSize))
	pages := uint32(r.Length / pageSize)
	if r.Written {
		pages |= writtenBit
	}
	w.body = binary.LittleEndian.AppendUint32(w.body, pages)
}

// Bytes returns the finished file for a guest with memory bytes of memory.
func (w *Writer) Bytes(memory int64) []byte {
	b := make([]byte, 0, headerSize+len(w.body)+sumSize)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, Format)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(w.body)/runSize))
	b = binary.LittleEndian.AppendUint64(b, uint64(memory/pageSize))
	b = append(b, w.body...)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// Read reads and checks a file of a guest with memory bytes of memory.
func Read(r io.ReaderAt, memory int64) (Set, error) {
	head := make([]byte, headerSize)
	if err := readAt(r, head, 0); err != nil {
		return Set{}, fmt.Errorf("read working set: %w", err)
	}
	if string(head[:8]) != magic || binary.LittleEndian.Uint32(head[8:]) != Format {
		return Set{}, fmt.Errorf("read working set: %w", ErrFormat)
	}
	n := binary.LittleEndian.Uint32(head[12:])
	if n > MaxRuns {
		return Set{}, fmt.Errorf("read working set: %w: %d runs, want at most %d", ErrDamaged, n, MaxRuns)
	}
	rest := make([]byte, int(n)*runSize+sumSize)
	if err := readAt(r, rest, headerSize); err != nil {
		return Set{}, fmt.Errorf("read working set: %w", err)
	}
	body, sum := rest[:int(n)*runSize], rest[int(n)*runSize:]
	if crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, body) != binary.LittleEndian.Uint32(sum) {
		return Set{}, fmt.Errorf("read working set: %w: its checksum is wrong", ErrDamaged)
	}
	if pages := binary.LittleEndian.Uint64(head[16:]); pages != uint64(memory/pageSize) {
		return Set{}, fmt.Errorf("read working set: %w: it is of %d pages of memory, the guest has %d",
			ErrDamaged, pages, memory/pageSize)
	}
	s := Set{runs: body}
	if err := s.check(memory); err != nil {
		return Set{}, fmt.Errorf("read working set: %w: %w", ErrDamaged, err)
	}
	return s, nil
}

// readAt reads b at an offset. It distinguishes a truncated file from a read error.
func readAt(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: cut short", ErrDamaged)
	}
	return err
}

func (s Set) check(memory int64) error {
	var next int64
	for r := range s.Runs() {
		if r.Length == 0 || r.Offset < next || r.Length > memory-r.Offset {
			return fmt.Errorf("a run of %d bytes at %d, behind %d, in %d bytes of memory", r.Length, r.Offset, next, memory)
		}
		next = r.End()
	}
	return nil
}

// Runs yields the runs in ascending order. They do not overlap.
func (s Set) Runs() iter.Seq[Run] {
	return func(yield func(Run) bool) {
		for b := s.runs; len(b) >= runSize; b = b[runSize:] {
			if !yield(decodeRun(b)) {
				return
			}
		}
	}
}

func decodeRun(b []byte) Run {
	first, pages := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	return Run{
		Run:     extent.Run{Offset: int64(first) * pageSize, Length: int64(pages&^writtenBit) * pageSize},
		Written: pages&writtenBit != 0,
	}
}
