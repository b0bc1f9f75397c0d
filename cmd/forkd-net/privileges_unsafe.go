package main

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropPrivileges gives up all capabilities, in every thread, for good. Whoever it
// runs as is the daemon's or the jail's choice.
func dropPrivileges() error {
	if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// It fails without CAP_SETPCAP: then there is nothing to drop that could come back.
		_ = allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
	}
	return dropCapabilities()
}

func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	// SAFETY: the kernel reads both during the call only; version 3 has two parts of data.
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// allThreads makes a system call without pointers in each thread.
func allThreads(trap, a1, a2, a3 uintptr) error {
	// SAFETY: no argument is a pointer.
	_, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, a3, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
