// Package platform says where VMs can run: Linux on x86-64. It owns that one
// rule, and no measuring of a host, which is hostcap's. The CLI asks it before
// it offers to run VMs here, forkd-vmm before it opens anything. The trap: a
// program that compiles for another system proves nothing; what talks to a
// daemon elsewhere works there, and what runs VMs must refuse by this rule.
package platform

import (
	"errors"
	"fmt"
)

// ErrUnsupported is what Check's errors are.
var ErrUnsupported = errors.New("platform is not supported")

// Error names the platform on which VMs cannot run.
type Error struct{ GOOS, GOARCH string }

func (e *Error) Error() string {
	return fmt.Sprintf("VMs need Linux on x86-64, and this is %s/%s", e.GOOS, e.GOARCH)
}

// Is makes it an ErrUnsupported.
func (e *Error) Is(target error) bool { return target == ErrUnsupported }

// Check returns an *Error unless VMs can run on the platform, which is named as
// by runtime.GOOS and runtime.GOARCH.
func Check(goos, goarch string) error {
	if goos == "linux" && goarch == "amd64" {
		return nil
	}
	return &Error{GOOS: goos, GOARCH: goarch}
}
