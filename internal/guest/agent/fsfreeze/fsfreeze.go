//go:build linux

// Package fsfreeze freezes a file system for a moment: writes block, and the data on the disk is
// consistent, as after an unmount. The guest's writable disk has no journal, so only this state can
// be mounted again without the guest's memory. Programs that write block until the thaw, and the
// caller may disappear meanwhile. So the file system thaws after Limit at the latest.
package fsfreeze

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Limit is the longest time for which a file system stays frozen, by the guest's clock.
const Limit = 30 * time.Second

// Requests of ioctl_fsfreeze, include/uapi/linux/fs.h.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// Freezer freezes one file system. Its methods are safe for concurrent use.
type Freezer struct {
	open  func() (*os.File, error)
	ioctl func(fd int, request uint, value int) error
	log   func(string, ...any)

	mu   sync.Mutex // guards thaw, and the order of freezes and thaws
	thaw *time.Timer
}

// New returns a Freezer. open opens a directory of the file system.
func New(open func() (*os.File, error), log func(string, ...any)) *Freezer {
	return &Freezer{open: open, ioctl: unix.IoctlSetInt, log: log}
}

// Freeze freezes the file system until Thaw, or for Limit. If it is already frozen, Limit starts
// again.
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

// Thaw lets programs write again. It does nothing if the file system is not frozen.
func (f *Freezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thaw == nil {
		return nil
	}
	f.thaw.Stop()
	return f.thawLocked()
}

// Frozen reports whether the file system is frozen.
func (f *Freezer) Frozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thaw != nil
}

func (f *Freezer) thawLocked() error {
	f.thaw = nil
	err := f.do(fiThaw)
	if errors.Is(err, unix.EINVAL) { // another process has thawed it
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
