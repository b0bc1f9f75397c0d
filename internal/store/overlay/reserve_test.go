package overlay

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk does not use the reserve of its host's file system, except for one limited step. Allocated blocks can
// still be written.
func TestTheReserveIsLeftAlone(t *testing.T) {
	f := newFake()
	f.room = 10 << 20
	d, err := open(f, 64<<20, nil)
	must(t, err)
	d.Reserve(4 << 20)
	block := make([]byte, 256<<10)
	var at int64
	for ; err == nil && at < 64<<20; at += int64(len(block)) {
		if err = d.WriteVecAt([][]byte{block}, at); err == nil {
			f.room -= int64(len(block))
		}
	}
	if !NoRoom(err) || d.Broken() != nil || !strings.Contains(err.Error(), "including the reserve") {
		t.Fatalf("at %d: %v, broken: %v", at, err, d.Broken())
	}
	if f.room < 4<<20-reserveStep || f.room > 5<<20 {
		t.Errorf("%d KiB are left, of which 4096 should be", f.room>>10)
	}
	must(t, d.WriteVecAt([][]byte{block}, 0)) // no new block
	if err := d.WriteVecAt([][]byte{block}, at); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a second attempt: %v", err)
	}
	f.room = 10 << 20
	must(t, d.WriteVecAt([][]byte{block}, at))
	f.fail = func(op string) error {
		if op == "free" {
			return unix.EIO
		}
		return nil
	}
	for i := range int64(8) { // without this information, writes continue until the file system is full
		must(t, d.WriteVecAt([][]byte{block}, at+(i+1)*int64(len(block))))
	}
}

// A disk with a limit does not use more host space, except for one limited step, however the guest writes and
// discards.
func TestADiskKeepsToItsLimit(t *testing.T) {
	f := newFake()
	d, err := open(f, 64<<20, nil)
	must(t, err)
	const limit = 4 << 20
	d.Limit(limit)
	block := make([]byte, 256<<10)
	block[0] = 1
	fill := func(from int64) int64 {
		at := from
		for ; at < 64<<20; at += int64(len(block)) {
			if err = d.WriteVecAt([][]byte{block}, at); err != nil {
				break
			}
		}
		if !NoRoom(err) || d.Broken() != nil || !strings.Contains(err.Error(), "disk limit of 4 MiB is reached") {
			t.Fatalf("at %d: %v, broken: %v", at, err, d.Broken())
		}
		if used, _ := f.used(); used > limit+reserveStep {
			t.Errorf("from %d on: %d KiB are used", from, used>>10)
		}
		return at
	}
	at := fill(0)
	must(t, d.Discard(0, at))
	at = fill(at) // discarded data does not count
	must(t, d.Discard(0, at))
	fill(0) // allocated blocks without space
	f.fail = func(op string) error {
		if op == "used" {
			return unix.EIO
		}
		return nil
	}
	for i := range int64(8) { // if the usage is unknown, the error is noticed after some writes
		err = d.WriteVecAt([][]byte{block}, i*int64(len(block)))
	}
	if !errors.Is(err, unix.EIO) {
		t.Errorf("a file that does not say: %v", err)
	}
}

func TestUsedIsWhatTheFileTakes(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "overlay"))
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(1<<30))
	before, err := file{f}.used()
	must(t, err)
	_, err = f.WriteAt(make([]byte, 1<<20), 512<<20)
	must(t, err)
	must(t, f.Sync())
	if now, err := (file{f}).used(); err != nil || before > 64<<10 || now < 1<<20 || now > 2<<20 {
		t.Errorf("empty it takes %d bytes, with a MiB %d, %v", before, now, err)
	}
}
