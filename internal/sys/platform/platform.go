// Package platform defines where VMs can run: Linux on x86-64. It owns only this rule; package hostcap examines a
// host. The CLI checks it before it offers to run VMs on this host, and forkd-vmm before it opens any files.
// Beware: code that compiles for another system may still not work there. Clients of a remote daemon work
// everywhere, but programs that run VMs must check this rule.
package platform

import (
	"errors"
	"fmt"
)

// ErrUnsupported matches Check's errors.
var ErrUnsupported = errors.New("platform is not supported")

// Error names a platform without support for VMs.
type Error struct{ GOOS, GOARCH string }

func (e *Error) Error() string {
	return fmt.Sprintf("VMs need Linux on x86-64, and this is %s/%s", e.GOOS, e.GOARCH)
}

// Is reports that it matches ErrUnsupported.
func (e *Error) Is(target error) bool { return target == ErrUnsupported }

// Check returns an *Error if VMs cannot run on the platform, given by the values of runtime.GOOS and
// runtime.GOARCH.
func Check(goos, goarch string) error {
	if goos == "linux" && goarch == "amd64" {
		return nil
	}
	return &Error{GOOS: goos, GOARCH: goarch}
}
