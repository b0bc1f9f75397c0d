// Package linux defines the error for features missing in the running kernel. Packages that call the kernel (kvm,
// guestmem, uffd) return it. A caller that can work without the feature checks errors.Is(err,
// errors.ErrUnsupported) and continues. Beware: a system call's ENOSYS or EOPNOTSUPP matches as well, so only
// check errors of a single feature.
package linux

import (
	"errors"
	"fmt"
)

// Unsupported reports a missing feature and the kernel version that has it.
type Unsupported struct {
	Feature string // its name in documentation
	Since   string // the lowest version of Linux, such as "6.7"
	Err     error  // the kernel's error
}

// Error returns a text with the feature, the version and the kernel's error.
func (e *Unsupported) Error() string {
	return fmt.Sprintf("%s is not available: it needs Linux %s (%v)", e.Feature, e.Since, e.Err)
}

// Is reports that it matches errors.ErrUnsupported.
func (e *Unsupported) Is(target error) bool { return target == errors.ErrUnsupported }

// Unwrap returns the kernel's error.
func (e *Unsupported) Unwrap() error { return e.Err }
