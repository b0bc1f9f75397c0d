package kvm

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group and attribute of a vCPU's TSC offset (KVM_VCPU_TSC_CTRL and
// KVM_VCPU_TSC_OFFSET, Documentation/virt/kvm/devices/vcpu.rst §4).
const (
	vcpuTSCControl = 0
	vcpuTSCOffset  = 0
)

// HasTSCOffset reports whether the kernel has TSCOffset and SetTSCOffset (Linux 5.16).
func (c *VCPU) HasTSCOffset() (bool, error) {
	err := c.tscOffset(nrHasDeviceAttr, new(uint64))
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.EPERM) {
		return false, nil
	}
	return err == nil, c.wrap("look for TSC offset", err)
}

// TSCOffset returns the offset added to the host's time-stamp counter, at the guest's frequency,
// for the guest.
func (c *VCPU) TSCOffset() (offset uint64, err error) {
	err = c.tscOffset(nrGetDeviceAttr, &offset)
	return offset, c.wrap("get TSC offset", err)
}

// SetTSCOffset sets the offset. Unlike a write of the counter, KVM never takes it for an attempt at
// synchronisation.
func (c *VCPU) SetTSCOffset(offset uint64) error {
	return c.wrap("set TSC offset", c.tscOffset(nrSetDeviceAttr, &offset))
}

func (c *VCPU) tscOffset(nr uintptr, value *uint64) error {
	// SAFETY: the kernel reads or writes the 8 bytes at Addr during the call; value is
	// pinned for as long, and ioctlPtr keeps the structure itself.
	var pin runtime.Pinner
	pin.Pin(value)
	defer pin.Unpin()
	a := deviceAttr{Group: vcpuTSCControl, Attr: vcpuTSCOffset, Addr: uint64(uintptr(unsafe.Pointer(value)))}
	return ioctlPtr(c.fd, iocWrite, nr, &a)
}
