package kvm

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Run enters the guest until the next exit. It returns unix.EINTR when a signal or SetImmediateExit
// ended it; the caller decides whether to continue.
func (c *VCPU) Run() error {
	// SAFETY: KVM_RUN takes no pointer; what it writes goes to the mapped run area.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), ioc(0, nrRun, 0), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// SetImmediateExit makes the next or current Run return EINTR (if true), or allows the vCPU to run
// again (if false). Any thread may call it. Together with Kick it stops a vCPU without a window in
// which the signal is lost.
func (c *VCPU) SetImmediateExit(on bool) {
	var v uint32
	if on {
		v = 1 << 8 // immediate_exit is byte 1 of kvm_run, request_interrupt_window byte 0
	}
	// SAFETY: kvm_run is page aligned; bytes 0 to 3 are request_interrupt_window,
	// immediate_exit and padding, of which we use only the second.
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&c.run[0])), v)
}

// Kick sends thread tid of this process the signal that interrupts a Run. The
// Go runtime already handles SIGURG and ignores a stray one.
func Kick(tid int) error { return unix.Tgkill(unix.Getpid(), tid, unix.SIGURG) }
