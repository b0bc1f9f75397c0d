package blk

import (
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

// FuzzRequest sends a request of any content and framing to a small disk. Its host may have no room
// for the first few attempts.
func FuzzRequest(f *testing.F) {
	f.Add(header(opIn, 0), uint16(513), uint8(16), uint8(0))
	f.Add(append(header(opOut, 1), make([]byte, 512)...), uint16(1), uint8(7), uint8(2))
	f.Add(append(header(opWriteZeroes, 0), segments(segment{0, 1, 1})...), uint16(1), uint8(32), uint8(1))
	f.Add(header(opGetID, 0), uint16(3), uint8(1), uint8(0))
	f.Add(append(header(opDiscard, 0), segments(segment{1, 2, 0}, segment{0, 8, 0})...), uint16(1), uint8(3), uint8(1))
	f.Add(header(opFlush, 0), uint16(1), uint8(200), uint8(3))
	f.Add([]byte{}, uint16(0), uint8(0), uint8(0))
	file, _ := imageFile(f, make([]byte, 8*SectorSize))
	host := &fullAtFirst{File: file}
	dev := newDisk(f, Config{Backend: host})
	mem := virtiotest.NewMemory(1 << 20)
	f.Fuzz(func(t *testing.T, out []byte, in uint16, cut, full uint8) {
		if len(out) > 4096 || in > 8192 {
			return
		}
		b := virtiotest.New(t, dev, mem.Clone())
		d, err := b.Start(^uint64(0))
		if err != nil {
			t.Fatal(err)
		}
		var segs []virtiotest.Seg
		at, n := d.Mem.Put(out), len(out)
		for k := int(cut) + 1; n > 0 && len(segs) < 64; {
			k = min(k, n)
			segs = append(segs, virtiotest.Seg{GPA: at, Len: k})
			at, n = at+uint64(k), n-k
		}
		if in > 0 {
			segs = append(segs, virtiotest.Seg{GPA: d.Mem.Alloc(int(in)), Len: int(in), Write: true})
		}
		if _, ok := d.Queues[0].Add(segs...); !ok {
			return
		}
		host.full = int(full % 4)
		d.Queues[0].Kick()
		for range int(full % 4) {
			dev.Kick()
		}
		_, used, ok := d.Queues[0].Used()
		if !ok && d.Fault() == nil {
			t.Error("request neither answered nor refused")
		}
		if used > int(in) {
			t.Errorf("%d bytes written into %d", used, in)
		}
		if file.Size() != 8*SectorSize {
			t.Error("the disk changed its size")
		}
	})
}

// fullAtFirst has no room for its first writes.
type fullAtFirst struct {
	*File
	full int
}

func (f *fullAtFirst) then(do func() error) error {
	if f.full > 0 {
		f.full--
		return virtio.ErrLater
	}
	return do()
}

func (f *fullAtFirst) WriteVecAt(bufs [][]byte, off int64) error {
	return f.then(func() error { return f.File.WriteVecAt(bufs, off) })
}
func (f *fullAtFirst) Discard(off, n int64) error {
	return f.then(func() error { return f.File.Discard(off, n) })
}
func (f *fullAtFirst) WriteZeroes(off, n int64) error {
	return f.then(func() error { return f.File.WriteZeroes(off, n) })
}
func (f *fullAtFirst) Flush() error { return f.then(f.File.Flush) }

// FuzzRestoreState feeds the state decoder.
func FuzzRestoreState(f *testing.F) {
	f.Add(newDisk(f, Config{Backend: &ram{b: make([]byte, 1024)}}).SaveState())
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = newDisk(t, Config{Backend: &ram{b: make([]byte, 1024)}}).RestoreState(b)
	})
}
