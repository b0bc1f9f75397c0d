package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/internal/snapshot"
)

// Bounds of a chain's memory: more mappings cost every child, and a message to
// its VMM holds only so many.
const (
	// fillGap is the largest gap between own runs that is filled with the
	// content below, in bytes.
	fillGap = 4 * pageBytes
	// maxChainSegments is how many mappings a child may need.
	maxChainSegments = 512
	pageBytes        = 4096
)

// layMemory puts the captured runs over the parent's memory. A full branch, or
// one with too many pieces, gets all of it in its own file.
func (w *branching) layMemory(m *snapshot.Manifest, own []snapshot.Segment) error {
	below := w.belowNamed()
	own, err := w.fillGaps(own)
	if err != nil {
		return err
	}
	m.Memory = overlay(below, own)
	if w.req.Mode != BranchFull && len(m.Memory) <= maxChainSegments {
		return w.adoptMemory(m)
	}
	if err := w.copyBelow(holes(own, snapshot.Segment{Length: m.Shape.MemoryBytes()})); err != nil {
		return err
	}
	m.Memory = []snapshot.Segment{{File: snapshot.MemoryFile, Length: m.Shape.MemoryBytes()}}
	return w.adoptHot()
}

// belowNamed is the parent's memory with names that its files have in the new
// snapshot: its own memory file is named after its content hash.
func (w *branching) belowNamed() []snapshot.Segment {
	out := make([]snapshot.Segment, 0, len(w.src.files.Manifest.Memory))
	for _, s := range w.src.files.Manifest.Memory {
		if s.File == snapshot.MemoryFile {
			s.File = w.parentMemoryName()
		}
		out = append(out, s)
	}
	return out
}

func (w *branching) parentMemoryName() string {
	return snapshot.MemoryFile + "." + strings.TrimPrefix(w.src.files.ContentHash, "sha256:")[:16]
}

// adoptMemory links the files of the parent's memory that are still visible.
func (w *branching) adoptMemory(m *snapshot.Manifest) error {
	dir := w.e.store.Dir(w.base)
	have := map[string]bool{snapshot.MemoryFile: true}
	for _, s := range m.Memory {
		if have[s.File] {
			continue
		}
		have[s.File] = true
		name := s.File
		if name == w.parentMemoryName() {
			name = snapshot.MemoryFile
		}
		if err := w.draft.Adopt(s.File, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return w.adoptHot()
}

// adoptHot takes the parent's hot set: what children touch first is the same.
func (w *branching) adoptHot() error {
	if w.src.hot == nil {
		return nil
	}
	return w.draft.Adopt(snapshot.HotFile, filepath.Join(w.e.store.Dir(w.base), snapshot.HotFile))
}

// fillGaps joins runs that lie close together, by content from below.
func (w *branching) fillGaps(own []snapshot.Segment) ([]snapshot.Segment, error) {
	var out, gaps []snapshot.Segment
	for _, s := range own {
		last := len(out) - 1
		if last < 0 || s.Offset-endOf(out[last]) > fillGap {
			out = append(out, s)
			continue
		}
		if gap := s.Offset - endOf(out[last]); gap > 0 {
			gaps = append(gaps, snapshot.Segment{Offset: endOf(out[last]), Length: gap})
		}
		out[last].Length = endOf(s) - out[last].Offset
	}
	return out, w.copyBelow(gaps)
}

// copyBelow copies ranges of the parent's memory into the new memory file.
func (w *branching) copyBelow(ranges []snapshot.Segment) error {
	to := w.draft.Opened(snapshot.MemoryFile)
	buf := make([]byte, 256<<10)
	for _, r := range ranges {
		for _, s := range clipTo(w.src.files.Manifest.Memory, r) {
			if err := copyData(to, w.src.files.File(s.File), s, buf); err != nil {
				return fmt.Errorf("copy memory from below: %w", err)
			}
		}
	}
	return nil
}

// copyData copies a segment but for its zeros, which are holes in the new file.
func copyData(to, from *os.File, s snapshot.Segment, buf []byte) error {
	for at := int64(0); at < s.Length; {
		b := buf[:min(int64(len(buf)), s.Length-at)]
		if _, err := from.ReadAt(b, s.FileOffset+at); err != nil {
			return err
		}
		for p := 0; p < len(b); p += pageBytes {
			page := b[p:min(p+pageBytes, len(b))]
			if allZero(page) {
				continue
			}
			if _, err := to.WriteAt(page, s.Offset+at+int64(p)); err != nil {
				return err
			}
		}
		at += int64(len(b))
	}
	return nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func endOf(s snapshot.Segment) int64 { return s.Offset + s.Length }

// overlay lays upper over lower. Both are rising and do not overlap, and so is the result.
func overlay(lower, upper []snapshot.Segment) []snapshot.Segment {
	var out []snapshot.Segment
	for _, l := range lower {
		for _, r := range holes(clipTo(upper, l), l) {
			out = append(out, clipTo([]snapshot.Segment{l}, r)...)
		}
	}
	return merge(out, upper)
}

// merge puts two rising lists that do not overlap into one.
func merge(a, b []snapshot.Segment) []snapshot.Segment {
	out := make([]snapshot.Segment, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].Offset < b[0].Offset {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// clipTo is the part of rising segments that lies within r.
func clipTo(segments []snapshot.Segment, r snapshot.Segment) []snapshot.Segment {
	var out []snapshot.Segment
	for _, s := range segments {
		from, to := max(s.Offset, r.Offset), min(endOf(s), endOf(r))
		if from < to {
			out = append(out, snapshot.Segment{File: s.File, FileOffset: s.FileOffset + from - s.Offset, Offset: from, Length: to - from})
		}
	}
	return out
}

// holes are the ranges of within that no segment covers.
func holes(segments []snapshot.Segment, within snapshot.Segment) []snapshot.Segment {
	at, to := within.Offset, endOf(within)
	var out []snapshot.Segment
	for _, s := range segments {
		if s.Offset > at {
			out = append(out, snapshot.Segment{Offset: at, Length: s.Offset - at})
		}
		at = max(at, endOf(s))
	}
	if at < to {
		out = append(out, snapshot.Segment{Offset: at, Length: to - at})
	}
	return out
}
