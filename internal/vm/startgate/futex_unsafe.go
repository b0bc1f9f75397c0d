package startgate

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Futex operations on memory that processes share (linux/futex.h).
const (
	opWait   = 0
	opWake   = 1
	everyone = 1<<31 - 1
)

// word is the gate: 0 is shut.
//
// SAFETY: page is a mapping of a whole page, so that its first word is there and aligned.
func word(page []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(page))) }

// futexWake wakes all waiters.
//
// SAFETY: the kernel only looks the word's page up.
func futexWake(page []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word(page))), opWake, everyone, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// futexWait blocks while the word is 0, until it is woken, atMost has passed, or a signal arrives.
//
// SAFETY: the kernel reads the word and the timeout, and both live until it returns.
func futexWait(page []byte, atMost time.Duration) {
	limit := unix.NsecToTimespec(atMost.Nanoseconds())
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word(page))), opWait, 0, uintptr(unsafe.Pointer(&limit)), 0, 0)
}
