package overlay

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
)

// fakeFile is an overlay file that simulates power cuts. A page written since the last sync then has any of the
// contents that it had since.
type fakeFile struct {
	pages map[int64][][]byte // versions; the first one is durable, nil is a hole
	sizes []int64
	fail  func(op string) error // may be nil
	room  int64                 // of the file system
}

func newFake() *fakeFile { return &fakeFile{pages: map[int64][][]byte{}, sizes: []int64{0}} }

func (f *fakeFile) try(op string) error {
	if f.fail == nil {
		return nil
	}
	return f.fail(op)
}

func last[T any](s []T) (v T) {
	if len(s) == 0 {
		return v
	}
	return s[len(s)-1]
}

func (f *fakeFile) length() (int64, error) { return last(f.sizes), nil }

func (f *fakeFile) page(i int64) []byte { return last(f.pages[i]) }

func (f *fakeFile) put(i int64, b []byte) {
	if len(f.pages[i]) == 0 {
		f.pages[i] = [][]byte{nil}
	}
	f.pages[i] = append(f.pages[i], b)
}

func (f *fakeFile) readAll(bufs [][]byte, off int64) error {
	if err := f.try("read"); err != nil {
		return err
	}
	for _, b := range bufs {
		for len(b) > 0 {
			p := make([]byte, BlockSize)
			copy(p, f.page(off/BlockSize))
			n := copy(b, p[off%BlockSize:])
			b, off = b[n:], off+int64(n)
		}
	}
	return nil
}

func (f *fakeFile) writeAll(bufs [][]byte, off int64) error {
	for b := bytes.Join(bufs, nil); len(b) > 0; { // a page is written at once
		if err := f.try("write"); err != nil { // perhaps in the middle of the write
			return err
		}
		p := make([]byte, BlockSize)
		copy(p, f.page(off/BlockSize))
		n := copy(p[off%BlockSize:], b)
		f.put(off/BlockSize, p)
		b, off = b[n:], off+int64(n)
	}
	if off > last(f.sizes) {
		f.sizes = append(f.sizes, off)
	}
	return nil
}

func (f *fakeFile) sync() error {
	if err := f.try("sync"); err != nil {
		return err
	}
	for i, v := range f.pages {
		f.pages[i] = v[len(v)-1:]
	}
	f.sizes = f.sizes[len(f.sizes)-1:]
	return nil
}

func (f *fakeFile) punch(off, n int64) error {
	if err := f.try("punch"); err != nil {
		return err
	}
	for i := off / BlockSize; i < (off+n)/BlockSize; i++ {
		f.put(i, nil)
	}
	return nil
}

func (f *fakeFile) nextData(off, end int64) (int64, error) {
	for ; off < end && f.page(off/BlockSize) == nil; off = (off/BlockSize + 1) * BlockSize {
	}
	return min(off, end), nil
}

func (f *fakeFile) nextHole(off, end int64) (int64, error) {
	for ; off < end && f.page(off/BlockSize) != nil; off = (off/BlockSize + 1) * BlockSize {
	}
	return min(off, end), nil
}

func (f *fakeFile) used() (int64, error) { return int64(len(f.pages)) * BlockSize, f.try("used") }

func (f *fakeFile) free() (int64, error) { return f.room, f.try("free") }

// loss returns the file after a power cut.
func (f *fakeFile) loss(r *rand.Rand) *fakeFile {
	g := newFake()
	g.sizes = []int64{f.sizes[r.IntN(len(f.sizes))]}
	for _, i := range slices.Sorted(maps.Keys(f.pages)) {
		if v := f.pages[i]; i*BlockSize < last(g.sizes) {
			g.pages[i] = [][]byte{v[r.IntN(len(v))]}
		}
	}
	return g
}
