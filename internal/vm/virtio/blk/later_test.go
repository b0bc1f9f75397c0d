package blk

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

// waiting is a Backend that refuses everything with ErrLater until told otherwise, and records the
// requests.
type waiting struct {
	*ram
	full  bool
	asked []string
	each  func() // called by each request
}

func (w *waiting) ask(what string, off, n int64) error {
	w.asked = append(w.asked, fmt.Sprint(what, " ", off, " ", n))
	if w.each != nil {
		w.each()
	}
	if w.full {
		return virtio.ErrLater
	}
	return nil
}

func (w *waiting) WriteAt(p []byte, off int64) (int, error) {
	if err := w.ask("write", off, int64(len(p))); err != nil {
		return 0, err
	}
	return w.ram.WriteAt(p, off)
}

func (w *waiting) Flush() error                   { return w.ask("flush", 0, 0) }
func (w *waiting) Discard(off, n int64) error     { return w.ask("discard", off, n) }
func (w *waiting) WriteZeroes(off, n int64) error { return w.ask("zero", off, n) }

// submit puts a request into the queue and returns the address of its status.
func submit(t testing.TB, d *virtiotest.Driver, op uint32, sector uint64, out []byte) (status uint64) {
	t.Helper()
	req := append(header(op, sector), out...)
	status = d.Mem.Alloc(1)
	if _, ok := d.Queues[0].Add(virtiotest.Seg{GPA: d.Mem.Put(req), Len: len(req)}, virtiotest.Seg{GPA: status, Len: 1, Write: true}); !ok {
		t.Fatal("no descriptors")
	}
	d.Queues[0].Kick()
	return status
}

// A postponed request is done later, in order, and no request behind it is done before.
func TestARequestThatWaits(t *testing.T) {
	w := &waiting{ram: &ram{b: make([]byte, diskSectors*SectorSize)}, full: true}
	dev := newDisk(t, Config{Backend: w})
	d, err := virtiotest.New(t, dev, virtiotest.NewMemory(1<<20)).Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	want := noise(SectorSize)
	statuses := []uint64{
		submit(t, d, opOut, 1, want), submit(t, d, opFlush, 0, nil),
		submit(t, d, opDiscard, 0, segments(segment{8, 8, 0})), submit(t, d, opWriteZeroes, 0, segments(segment{16, 8, 0})),
	}
	for range 3 {
		dev.Kick()
	}
	if _, _, ok := d.Queues[0].Used(); ok || d.Fault() != nil {
		t.Fatalf("answered %v, fault %v", ok, d.Fault())
	}
	for _, a := range w.asked {
		if a != "write 512 512" {
			t.Errorf("while the first request waits: %s", a)
		}
	}
	w.full, w.asked = false, nil
	dev.Kick()
	for i, gpa := range statuses {
		if _, _, ok := d.Queues[0].Used(); !ok || d.Mem.Bytes(gpa, 1)[0] != statusOK {
			t.Errorf("request %d: answered %v, status %d", i, ok, d.Mem.Bytes(gpa, 1)[0])
		}
	}
	if got := fmt.Sprint(w.asked); got != "[write 512 512 flush 0 0 discard 4096 4096 zero 8192 4096]" {
		t.Errorf("it did %s", got)
	}
	if !bytes.Equal(w.b[SectorSize:2*SectorSize], want) {
		t.Error("the disk has something else")
	}
}

// A postponed request is in the saved state, and is done after the restore.
func TestARequestThatWaitsIsSaved(t *testing.T) {
	w := &waiting{ram: &ram{b: make([]byte, diskSectors*SectorSize)}, full: true}
	d := start(t, Config{Backend: w})
	want := noise(SectorSize)
	status := submit(t, d, opOut, 3, want)
	d.MMIO.Pause()
	state, err := d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}
	room := &waiting{ram: &ram{b: make([]byte, diskSectors*SectorSize)}}
	b := virtiotest.New(t, newDisk(t, Config{Backend: room}), d.Mem.Clone())
	if err := b.MMIO.Restore(state); err != nil {
		t.Fatal(err)
	}
	b.MMIO.Resume()
	d2 := d.Move(b)
	if _, _, ok := d2.Queues[0].Used(); !ok || d2.Mem.Bytes(status, 1)[0] != statusOK {
		t.Errorf("answered %v, status %d", ok, d2.Mem.Bytes(status, 1)[0])
	}
	if !bytes.Equal(room.b[3*SectorSize:4*SectorSize], want) {
		t.Error("the write is not on the disk")
	}
}

// A reset forgets postponed requests.
func TestAResetForgetsWhatWaits(t *testing.T) {
	w := &waiting{ram: &ram{b: make([]byte, diskSectors*SectorSize)}, full: true}
	d := start(t, Config{Backend: w})
	submit(t, d, opOut, 3, noise(SectorSize))
	d2, err := d.Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	w.full, w.asked = false, nil
	expect(t, d2, "a flush behind the reset", opFlush, 0, nil, 0, statusOK)
	if len(w.asked) != 1 {
		t.Errorf("it did %s", w.asked)
	}
}

// The largest requests of a guest are done in pieces, and a pause waits for at most one of them.
func TestALargeRequestDoesNotHoldUpAPause(t *testing.T) {
	const size = 16 << 30
	w := &waiting{ram: &ram{}}
	dev := newDisk(t, Config{Backend: sized{w, size}})
	d, err := virtiotest.New(t, dev, virtiotest.NewMemory(1<<20)).Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	var segs []segment
	for i := range uint64(4) {
		segs = append(segs, segment{i<<22 + 1, 1<<22 - 1, 0})
	}
	paused := make(chan struct{})
	w.each = func() {
		if len(w.asked) == 5 { // a pause of the device begins in the middle
			go func() {
				d.MMIO.Pause()
				close(paused)
			}()
			for end := time.Now().Add(20 * time.Second); !dev.Leaving(); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Error("nobody came to pause it")
					return
				}
			}
		}
	}
	status := submit(t, d, opWriteZeroes, 0, segments(segs...))
	<-paused
	if len(w.asked) != 5 || w.asked[0] != fmt.Sprint("zero 512 ", dropSlice-512) || w.asked[1] != fmt.Sprint("zero ", dropSlice, " ", dropSlice) {
		t.Errorf("it did %s", w.asked)
	}
	if _, _, ok := d.Queues[0].Used(); ok {
		t.Error("it is answered, though not done")
	}
	d.MMIO.Resume()
	if _, _, ok := d.Queues[0].Used(); !ok || d.Mem.Bytes(status, 1)[0] != statusOK {
		t.Errorf("answered %v, status %d", ok, d.Mem.Bytes(status, 1)[0])
	}
	if got := w.asked[len(w.asked)-1]; got != fmt.Sprint("zero ", int64(size/2-dropSlice), " ", dropSlice) {
		t.Errorf("the last it did is %s", got)
	}
}

// sized is a Backend with a size different from its content's.
type sized struct {
	*waiting
	size int64
}

func (s sized) Size() int64 { return s.size }

// Data is moved in pieces of a bounded size, for any size of the guest's request.
func TestALargeWriteIsDoneInPieces(t *testing.T) {
	w := &waiting{ram: &ram{b: make([]byte, 3*dataSlice)}}
	dev := newDisk(t, Config{Backend: w})
	d, err := virtiotest.New(t, dev, virtiotest.NewMemory(32<<20)).Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	want := noise(2 * dataSlice)
	status := submit(t, d, opOut, 1, want)
	if _, _, ok := d.Queues[0].Used(); !ok || d.Mem.Bytes(status, 1)[0] != statusOK || !bytes.Equal(w.b[SectorSize:][:len(want)], want) {
		t.Error("the disk has something else than was written")
	}
	if len(w.asked) < 3 || w.asked[0] != fmt.Sprint("write 512 ", dataSlice-512) {
		t.Errorf("it did %s", w.asked)
	}
	if got := expect(t, d, "read", opIn, 1, nil, len(want), statusOK); !bytes.Equal(got, want) {
		t.Error("it reads something else")
	}
}
