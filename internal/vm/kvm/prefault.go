package kvm

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/linux"
)

type preFaultMemory struct {
	GPA, Size, Flags uint64
	_                [5]uint64
}

// PreFault maps size bytes of guest memory at gpa into the guest, as far as the VMM has them mapped
// or can read them. Later accesses do not leave the guest. Both numbers are multiples of the page
// size. It returns errors.ErrUnsupported if the kernel lacks support or the CPU has no
// two-dimensional paging.
func (c *VCPU) PreFault(gpa, size uint64) error {
	r := preFaultMemory{GPA: gpa, Size: size}
	for r.Size > 0 { // the kernel advances GPA and reduces Size
		err := ioctlPtr(c.fd, iocRead|iocWrite, nrPreFaultMemory, &r)
		switch {
		case err == nil, errors.Is(err, unix.EAGAIN):
		case errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
			return c.wrap("pre-fault memory", &linux.Unsupported{Feature: "KVM_PRE_FAULT_MEMORY", Since: "6.11", Err: err})
		default:
			return c.wrap("pre-fault memory", err)
		}
	}
	return nil
}
