package overlay

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk leaves the reserve of its host's file system alone, but for a bounded step; what it has
// already can be written to all the same.
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
	if !NoRoom(err) || d.Broken() != nil || !strings.Contains(err.Error(), "stay in reserve") {
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
	for i := range int64(8) { // a file system that does not say has room until it has none
		must(t, d.WriteVecAt([][]byte{block}, at+(i+1)*int64(len(block))))
	}
}
