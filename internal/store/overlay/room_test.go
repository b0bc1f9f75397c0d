package overlay

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// While the host has no space, every write can be tried again, and no data is lost. Once there is space, a flush
// makes all writes durable, including the map.
func TestNoRoomCanBeTriedAgain(t *testing.T) {
	f := newFake()
	m := newModel(t, 3, f)
	var full bool
	f.fail = func(op string) error {
		if full && (op == "write" || op == "punch") && m.r.IntN(2) == 0 {
			return unix.EDQUOT
		}
		return nil
	}
	again := func(do func() error) {
		t.Helper()
		full = true
		err := do()
		for ; err != nil; err = do() {
			if !NoRoom(err) || m.d.Broken() != nil {
				t.Fatalf("%v, broken: %v", err, m.d.Broken())
			}
		}
		full = false
	}
	for range 40 {
		s, n := m.span()
		m.next++
		again(func() error { return m.d.WriteVecAt([][]byte{bytes.Repeat(sectorOf(m.next), int(n))}, s*sectorSize) })
		for i := s; i < s+n; i++ {
			m.now[i] = m.next
		}
		again(func() error { return m.d.WriteZeroes(s*sectorSize, sectorSize) })
		m.now[s] = 0
		again(m.d.Flush)
		m.settle()
		m.check()
		m.reopen(f.loss(m.r))
		m.whatFor = "after a loss of power"
		m.observe()
		f = m.own.(*fakeFile)
		f.fail = func(op string) error {
			if full && (op == "write" || op == "punch") && m.r.IntN(2) == 0 {
				return unix.ENOSPC
			}
			return nil
		}
	}
}

// The sync of the map can be tried again, because the map is in memory.
func TestNoRoomForTheMapsSync(t *testing.T) {
	f := newFake()
	d, err := open(f, 1<<20, nil)
	must(t, err)
	must(t, d.WriteVecAt([][]byte{bytes.Repeat([]byte{1}, 4096)}, 0))
	syncs := 0
	f.fail = func(op string) error {
		if op != "sync" {
			return nil
		}
		if syncs++; syncs == 2 {
			return unix.ENOSPC
		}
		return nil
	}
	if err := d.Flush(); !NoRoom(err) || d.Broken() != nil {
		t.Fatalf("the flush says %v, broken: %v", err, d.Broken())
	}
	must(t, d.Flush())
	again, err := open(f.loss(rand.New(rand.NewPCG(1, 1))), 1<<20, nil)
	must(t, err)
	if got := make([]byte, 1); again.ReadVecAt([][]byte{got}, 0) != nil || got[0] != 1 {
		t.Errorf("after a loss of power it reads %d", got)
	}
}

// Any other error is permanent. No more data is written, so that the guest notices the error with any later
// operation. Existing data can still be read.
func TestALostWriteIsForGood(t *testing.T) {
	for op, do := range map[string]func(*Disk) error{
		"write": func(d *Disk) error { return d.WriteVecAt([][]byte{make([]byte, 4096)}, 8192) },
		"punch": func(d *Disk) error { return d.WriteZeroes(0, 4096) },
		"sync":  func(d *Disk) error { return d.Flush() },
	} {
		errs := []error{unix.EIO}
		if op == "sync" { // the kernel dropped the data without space
			errs = append(errs, unix.ENOSPC)
		}
		for _, host := range errs {
			f := newFake()
			d, err := open(f, 1<<20, nil)
			must(t, err)
			must(t, d.WriteVecAt([][]byte{bytes.Repeat([]byte{1}, 4096)}, 4096))
			f.fail = func(o string) error {
				if o == op {
					return host
				}
				return nil
			}
			if err := do(d); !errors.Is(err, host) {
				t.Errorf("%s: %v, want %v", op, err, host)
			}
			f.fail = nil
			for what, err := range map[string]error{
				"write": d.WriteVecAt([][]byte{make([]byte, 512)}, 0), "flush": d.Flush(),
				"discard": d.Discard(4096, 4096), "write zeroes": d.WriteZeroes(4096, 4096), "broken": d.Broken(),
			} {
				if !errors.Is(err, host) {
					t.Errorf("after a %s that failed: %s says %v", op, what, err)
				}
			}
			if got := make([]byte, 1); d.ReadVecAt([][]byte{got}, 4096) != nil || got[0] != 1 {
				t.Errorf("after a %s that failed it reads %d", op, got)
			}
		}
	}
}

// A failed discard loses no data.
func TestADiscardThatFailsLosesNothing(t *testing.T) {
	f := newFake()
	d, err := open(f, 1<<20, nil)
	must(t, err)
	f.fail = func(op string) error {
		if op == "punch" {
			return unix.EIO
		}
		return nil
	}
	if err := d.Discard(0, 4096); !errors.Is(err, unix.EIO) || d.Broken() != nil {
		t.Errorf("it says %v, broken: %v", err, d.Broken())
	}
	must(t, d.WriteVecAt([][]byte{make([]byte, 512)}, 0))
}

// counted counts the syncs of an overlay file.
type counted struct {
	file
	syncs, broken int
}

func (c *counted) sync() error {
	if c.broken > 0 {
		return unix.EIO
	}
	c.syncs++
	return c.file.sync()
}

// A flush after a switch also makes the writes before it durable, including their map, unless a layer has
// replaced them.
func TestAFlushAfterASwitch(t *testing.T) {
	const size = 1 << 20
	switched := func() (d *Disk, before, after *counted) {
		before, after = &counted{file: file{tempFile(t, "before")}}, &counted{file: file{tempFile(t, "after")}}
		d, err := open(before, size, nil)
		must(t, err)
		must(t, d.WriteVecAt([][]byte{bytes.Repeat([]byte{1}, 4096)}, 0))
		if _, err := d.switchOverlay(after); err != nil {
			t.Fatal(err)
		}
		return d, before, after
	}
	t.Run("nothing is written behind it", func(t *testing.T) {
		d, before, _ := switched()
		must(t, d.Flush())
		if before.syncs != 2 { // blocks, then map
			t.Errorf("the frozen file was synced %d times", before.syncs)
		}
		again, err := Open(before.f, size, nil)
		must(t, err)
		if !again.allocated.has(0) {
			t.Error("its map does not say that the block is allocated")
		}
		must(t, d.Flush())
		if before.syncs != 2 {
			t.Error("it was synced again, although nothing had changed")
		}
	})
	t.Run("the map is saved already", func(t *testing.T) {
		d, before, after := switched()
		must(t, d.frozen[0].SaveMap())
		must(t, d.WriteVecAt([][]byte{make([]byte, 512)}, 0))
		must(t, d.Flush())
		if before.syncs != 1 || after.syncs != 2 {
			t.Errorf("the frozen file was synced %d times, the present one %d", before.syncs, after.syncs)
		}
	})
	t.Run("it cannot be made durable", func(t *testing.T) {
		d, before, _ := switched()
		before.broken = 1
		for range 2 {
			if err := d.Flush(); !errors.Is(err, unix.EIO) || !errors.Is(d.Broken(), unix.EIO) {
				t.Errorf("the flush says %v, broken: %v", err, d.Broken())
			}
			before.broken = 0 // the kernel reports an error once
		}
	})
	t.Run("a layer has taken its place", func(t *testing.T) {
		d, before, _ := switched()
		layer := tempFile(t, "layer")
		must(t, layer.Truncate(size))
		must(t, d.Rebase([]extent.Extent{{File: layer, Length: size}}))
		must(t, before.f.Close())
		must(t, d.Flush())
	})
}

// Zeros take no space, regardless of the guest's kind of request.
func TestZeroesTakeNoRoom(t *testing.T) {
	own := tempFile(t, "own")
	d, err := Open(own, 8<<30, nil)
	must(t, err)
	must(t, d.WriteVecAt([][]byte{bytes.Repeat([]byte{1}, 1<<20)}, 1<<20))
	must(t, d.WriteZeroes(100, 8<<30-200))
	must(t, d.Flush())
	var st unix.Stat_t
	must(t, unix.Fstat(int(own.Fd()), &st))
	if got := st.Blocks * 512; got > 512<<10 { // the map for 8 GiB, the trailer, two blocks at the ends
		t.Errorf("it takes %d KiB", got>>10)
	}
	got := make([]byte, 2<<20)
	if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, make([]byte, 2<<20)) {
		t.Errorf("it does not read as zeros (%v)", err)
	}
	if _, err := os.Stat(own.Name()); err != nil {
		t.Error(err)
	}
}
