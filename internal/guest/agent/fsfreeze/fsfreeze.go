//go:build linux

// Package fsfreeze holds a file system still for a moment: nothing writes to it, and what is on the disk
// is whole, as after an unmount. The guest's writable disk has no journal, so this is the only state in
// which it can be mounted again without its memory. The trap: programs that write stand until it is
// thawed, and whoever asked for it may be gone; so it thaws by itself.
package fsfreeze

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Limit is for how long a file system is held still at most, by the guest's clock.
const Limit = 30 * time.Second

// Requests of ioctl_fsfreeze, include/uapi/linux/fs.h.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// Freezer freezes one file system. Its methods may be called at once.
type Freezer struct {
	open  func() (*os.File, error)
	ioctl func(fd int, request uint, value int) error
	log   func(string, ...any)

	mu   sync.Mutex // guards what follows, and the order of freezes and thaws
	thaw *time.Timer
}

// New makes a Freezer of the file system that open opens a folder of.
func New(open func() (*os.File, error), log func(string, ...any)) *Freezer {
	return &Freezer{open: open, ioctl: unix.IoctlSetInt, log: log}
}

// Freeze holds the file system still until Thaw, or for Limit. One that is frozen stays so for Limit
// from now.
func (f *Freezer) Freeze() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thaw != nil && f.thaw.Stop() {
		f.thaw.Reset(Limit)
		return nil
	}
	if err := f.do(fiFreeze); err != nil {
		return err
	}
	var timer *time.Timer
	timer = time.AfterFunc(Limit, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.thaw == timer {
			f.thawLocked()
		}
	})
	f.thaw = timer
	return nil
}

// Thaw lets programs write. What is not frozen is left alone.
func (f *Freezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thaw == nil {
		return nil
	}
	f.thaw.Stop()
	return f.thawLocked()
}

func (f *Freezer) thawLocked() error {
	f.thaw = nil
	err := f.do(fiThaw)
	if errors.Is(err, unix.EINVAL) { // somebody else has thawed it
		err = nil
	}
	if err != nil {
		f.log("thaw the disk: %v", err)
	}
	return err
}

func (f *Freezer) do(request uint) error {
	dir, err := f.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	return os.NewSyscallError("ioctl", f.ioctl(int(dir.Fd()), request, 0))
}
