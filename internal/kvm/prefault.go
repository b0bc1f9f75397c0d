package kvm

import (
	"errors"

	"golang.org/x/sys/unix"
)

type preFaultMemory struct {
	GPA, Size, Flags uint64
	_                [5]uint64
}

// PreFault maps size bytes of guest memory at gpa into the guest as far as the
// VMM has them mapped or can read them: later accesses do not leave the guest.
// Both are multiples of the page size. Only with two-dimensional paging, since
// Linux 6.11; see PreFaultUnsupported.
func (c *VCPU) PreFault(gpa, size uint64) error {
	r := preFaultMemory{GPA: gpa, Size: size}
	for r.Size > 0 { // the kernel counts GPA and Size on as it goes
		err := ioctlPtr(c.fd, iocRead|iocWrite, nrPreFaultMemory, &r)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return c.wrap("pre-fault memory", err)
		}
	}
	return nil
}

// PreFaultUnsupported tells from PreFault's error that the kernel cannot do it.
func PreFaultUnsupported(err error) bool {
	return errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)
}
