// Package uffd is userfaultfd(2), as far as forkd needs it: marking memory as
// registered for asynchronous write-protection. It owns the descriptor; it
// protects nothing and serves no faults. Package guestmem calls it. The trap:
// closing the descriptor undoes every registration made with it.
package uffd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/linux"
)

// UFFD is an open userfaultfd.
type UFFD struct{ fd int }

// OpenAsyncWP opens a userfaultfd for asynchronous write-protection. It also
// covers faults that happen in the kernel: KVM's are. errors.ErrUnsupported: this kernel
// cannot, or does not let this process use userfaultfd for faults of the kernel. With device,
// which is /dev/userfaultfd, it needs no right of its own; nil: the system call, which takes one.
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

// RegisterWP registers length bytes at addr, both multiples of the page size,
// of this process. Nothing is write-protected by that; but the kernel now maps
// each page of it at its own first access, not its neighbours along with it.
func (u *UFFD) RegisterWP(addr uintptr, length int64) error {
	if err := u.register(addr, length, modeWP); err != nil {
		return fmt.Errorf("register %d bytes with userfaultfd: %w", length, err)
	}
	return nil
}

// Unprotect takes write-protection from length bytes at addr, all of them registered; also what the
// kernel keeps of it where a page is gone.
func (u *UFFD) Unprotect(addr uintptr, length int64) error {
	for {
		err := u.protect(addr, length, 0)
		if err == unix.EAGAIN { // the mappings were changing
			continue
		}
		if err != nil {
			return fmt.Errorf("take write-protection from %d bytes: %w", length, err)
		}
		return nil
	}
}

// Close undoes the registrations.
func (u *UFFD) Close() error { return unix.Close(u.fd) }
