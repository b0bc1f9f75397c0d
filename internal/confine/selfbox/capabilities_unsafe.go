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

// Of returns the set of the given capabilities.
func Of(capabilities ...int) (s Set) {
	for _, c := range capabilities {
		s |= 1 << c
	}
	return s
}

// Count returns the number of capabilities in the set.
func (s Set) Count() int { return bits.OnesCount64(uint64(s)) }

// Has reports whether a capability is in the set.
func (s Set) Has(c int) bool { return s&(1<<c) != 0 }

// NoNewPrivileges makes sure that no executed program has more privileges than the process.
func NoNewPrivileges() error {
	if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// Capabilities returns the process's permitted capabilities.
func Capabilities() (Set, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return Set(data[0].Permitted) | Set(data[1].Permitted)<<32, nil
}

// Keep drops all other capabilities in every thread, also for executed programs. Of the kept capabilities, use is
// effective immediately.
func Keep(keep, use Set) error {
	has, err := Capabilities()
	if err != nil {
		return err
	}
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if !keep.Has(c) {
			// This fails without CAP_SETPCAP. Then there is nothing to drop that an exec could regain.
			_ = allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0)
		}
	}
	permitted, effective := has&keep, has&keep&use
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		data[i] = unix.CapUserData{Effective: uint32(effective >> (32 * i)), Permitted: uint32(permitted >> (32 * i))}
	}
	// SAFETY: the kernel reads both only during the call; version 3 has two parts of data.
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
