package kvm

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigevent is struct sigevent of the kernel (include/uapi/asm-generic/siginfo.h).
type sigevent struct {
	_      uint64 // value
	signo  int32
	notify int32
	tid    int32
	_      [44]byte
}

const sigevThreadID = 4 // SIGEV_THREAD_ID

// KickEvery sends the calling thread Kick's signal after each d of CPU time that it uses, until it
// ends. Time in a guest counts. The thread must be locked to its goroutine.
func KickEvery(d time.Duration) error {
	ev := sigevent{signo: int32(unix.SIGURG), notify: sigevThreadID, tid: int32(unix.Gettid())}
	var id int32
	// SAFETY: both pointers are to values of the layout that timer_create(2) wants, and outlive the call.
	_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_THREAD_CPUTIME_ID,
		uintptr(unsafe.Pointer(&ev)), uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return errno
	}
	every := unix.NsecToTimespec(d.Nanoseconds())
	both := [2]unix.Timespec{every, every} // struct itimerspec: interval, value
	// SAFETY: the pointer is to a struct itimerspec, which timer_settime(2) reads.
	_, _, errno = unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&both)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
