//go:build linux

package seccomp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/linux"
)

// Threads selects the threads for a filter.
type Threads bool

const (
	ThisThread Threads = false
	AllThreads Threads = true // and threads created later
)

// Install applies the filter to the process, or to the calling thread. This cannot be undone. It returns
// errors.ErrUnsupported if the kernel lacks support.
func (f Filter) Install(mode Mode, threads Threads) error {
	program, err := f.program(mode, os.Getpid())
	if err != nil {
		return fmt.Errorf("filter %s: %w", f.Name, err)
	}
	runtime.LockOSThread() // no_new_privs is set per thread
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	flags := uintptr(0)
	if threads == AllThreads {
		flags = unix.SECCOMP_FILTER_FLAG_TSYNC
	}
	//nolint:gosec // a program has at most 4096 instructions
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	// SAFETY: instruction is laid out as struct sock_filter; the kernel copies program and prog, which live
	// through the call.
	other, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	switch {
	case errno == unix.ENOSYS || errno == unix.EINVAL:
		return &linux.Unsupported{Feature: "seccomp filters of system calls", Since: "4.14", Err: errno}
	case errno != 0:
		return fmt.Errorf("install filter %s: %w", f.Name, errno)
	case other != 0:
		return fmt.Errorf("install filter %s: thread %d has one of its own", f.Name, other)
	}
	return nil
}

// Available returns an error if filters cannot be installed here. It installs no filter.
func Available() error {
	action := uint32(RetKill)
	// SAFETY: the kernel reads action during the call.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno == 0 {
		// Without a program: a kernel that supports the flag reports the missing program.
		_, _, errno = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, 0)
		if errno == unix.EFAULT {
			return nil
		}
	}
	if errno == 0 {
		return errors.New("the kernel takes a filter that is none")
	}
	return &linux.Unsupported{Feature: "seccomp filters of system calls", Since: "4.14", Err: errno}
}
