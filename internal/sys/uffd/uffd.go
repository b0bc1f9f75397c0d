// Package uffd wraps the part of userfaultfd(2) that forkd needs: registering memory for asynchronous
// write-protection. It owns the descriptor. It does not protect memory or serve faults. Package guestmem calls
// it. Beware: closing the descriptor undoes every registration made with it.
package uffd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/linux"
)

// UFFD is an open userfaultfd.
type UFFD struct{ fd int }

// OpenAsyncWP opens a userfaultfd for asynchronous write-protection. It also covers faults in the kernel, such as
// KVM's. It returns errors.ErrUnsupported if the kernel lacks the feature, or does not let this process use
// userfaultfd for kernel faults. With device, an open /dev/userfaultfd, it needs no special right. If device is
// nil, it uses the system call, which needs one.
func OpenAsyncWP(device *os.File) (*UFFD, error) {
	var fd int
	var err error
	if device != nil {
		fd, err = openBy(device.Fd())
	} else {
		fd, err = open()
	}
	if err != nil {
		return nil, unsupported(err)
	}
	u := &UFFD{fd: fd}
	if err := u.api(featureWPAsync); err != nil {
		u.Close()
		return nil, unsupported(err)
	}
	return u, nil
}

func unsupported(err error) error {
	return &linux.Unsupported{Feature: "asynchronous write-protection with userfaultfd", Since: "6.7", Err: err}
}

// RegisterWP registers length bytes at addr of this process; both are multiples of the page size. This does not
// write-protect any page. But from now on the kernel maps each of these pages at its own first access, without
// its neighbours.
func (u *UFFD) RegisterWP(addr uintptr, length int64) error {
	if err := u.register(addr, length, modeWP); err != nil {
		return fmt.Errorf("register %d bytes with userfaultfd: %w", length, err)
	}
	return nil
}

// Unprotect removes write-protection from length bytes at addr, which must be registered. It also removes the
// kernel's marks for pages that are gone.
func (u *UFFD) Unprotect(addr uintptr, length int64) error {
	for {
		err := u.protect(addr, length, 0)
		if errors.Is(err, unix.EAGAIN) { // the mappings were changing
			continue
		}
		if err != nil {
			return fmt.Errorf("take write-protection from %d bytes: %w", length, err)
		}
		return nil
	}
}

// Close closes the descriptor and undoes the registrations.
func (u *UFFD) Close() error { return unix.Close(u.fd) }
