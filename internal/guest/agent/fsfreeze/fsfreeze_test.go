//go:build linux

package fsfreeze

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// disk behaves like a file system in the kernel: it cannot be frozen or thawed twice.
type disk struct {
	frozen bool
	broken bool
}

func (d *disk) ioctl(_ int, request uint, _ int) error {
	switch {
	case d.broken:
		return unix.EOPNOTSUPP
	case request == fiFreeze && d.frozen:
		return unix.EBUSY
	case request == fiThaw && !d.frozen:
		return unix.EINVAL
	}
	d.frozen = request == fiFreeze
	return nil
}

func freezer(d *disk) *Freezer {
	f := New(func() (*os.File, error) { return os.Open("/") }, func(string, ...any) {})
	f.ioctl = d.ioctl
	return f
}

func TestItThawsWhenItIsToldOrByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		f := freezer(d)
		for range 2 { // again, while it is frozen
			if err := f.Freeze(); err != nil || !d.frozen {
				t.Fatalf("frozen is %v, %v", d.frozen, err)
			}
			time.Sleep(Limit - time.Second) // elapses: nearly all of the limit
			synctest.Wait()
		}
		if err := f.Thaw(); err != nil || d.frozen {
			t.Errorf("thawed: frozen is %v, %v", d.frozen, err)
		}
		if err := f.Thaw(); err != nil {
			t.Errorf("thawed again: %v", err)
		}
		if err := f.Freeze(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(Limit) // elapses: all of it
		synctest.Wait()
		if d.frozen {
			t.Error("it does not thaw by itself")
		}
		if err := f.Freeze(); err != nil || !d.frozen {
			t.Errorf("after that it is not frozen: %v", err)
		}
		if d.frozen = false; f.Thaw() != nil {
			t.Error("what somebody else has thawed is an error")
		}
	})
}

func TestWhatCannotBeFrozen(t *testing.T) {
	d := &disk{broken: true}
	if err := freezer(d).Freeze(); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("got %v", err)
	}
	gone := New(func() (*os.File, error) { return nil, os.ErrNotExist }, func(string, ...any) {})
	if err := gone.Freeze(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a disk: %v", err)
	}
	if err := gone.Thaw(); err != nil {
		t.Errorf("what was not frozen: %v", err)
	}
}
