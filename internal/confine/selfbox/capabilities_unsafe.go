package selfbox

import (
	"fmt"
	"math/bits"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities, as bits.
type Set uint64

// Of is the set of these.
func Of(capabilities ...int) (s Set) {
	for _, c := range capabilities {
		s |= 1 << c
	}
	return s
}

// Count is how many are in the set.
func (s Set) Count() int { return bits.OnesCount64(uint64(s)) }

// Has tells whether a capability is in the set.
func (s Set) Has(c int) bool { return s&(1<<c) != 0 }

// NoNewPrivileges makes sure that no program gives the process more than it has.
func NoNewPrivileges() error {
	if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// Capabilities are those that the process may have in force.
func Capabilities() (Set, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return Set(data[0].Permitted) | Set(data[1].Permitted)<<32, nil
}

// Keep gives up all capabilities but these, also for programs that it executes, in every thread. Of
// what it keeps, use is what is in force at once.
func Keep(keep, use Set) error {
	has, err := Capabilities()
	if err != nil {
		return err
	}
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if !keep.Has(c) {
			// It fails without CAP_SETPCAP: then there is nothing to drop that could come back.
			_ = allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0)
		}
	}
	permitted, effective := has&keep, has&keep&use
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		data[i] = unix.CapUserData{Effective: uint32(effective >> (32 * i)), Permitted: uint32(permitted >> (32 * i))}
	}
	// SAFETY: the kernel reads both during the call only; version 3 has two parts of data.
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
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
