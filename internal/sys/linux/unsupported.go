// Package linux has the one error for what the running kernel cannot do. Packages
// that call the kernel (kvm, guestmem, uffd) return it; who can do without the feature asks
// errors.Is(err, errors.ErrUnsupported) and goes on. The trap: a system call's own
// ENOSYS or EOPNOTSUPP answers to that too, so ask only for the errors of one feature.
package linux

import (
	"errors"
	"fmt"
)

// Unsupported says that a feature is missing, and which kernel has it.
type Unsupported struct {
	Feature string // with the name that documentation has for it
	Since   string // the lowest version of Linux, like "6.7"
	Err     error  // what the kernel said
}

// Error names the feature, the version, and what the kernel said.
func (e *Unsupported) Error() string {
	return fmt.Sprintf("%s is not available: it needs Linux %s (%v)", e.Feature, e.Since, e.Err)
}

// Is makes it an errors.ErrUnsupported.
func (e *Unsupported) Is(target error) bool { return target == errors.ErrUnsupported }

// Unwrap is what the kernel said.
func (e *Unsupported) Unwrap() error { return e.Err }
