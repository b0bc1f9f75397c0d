package hostnet

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Taps are the taps allowed by an operator: names, and prefixes ending in a *.
type Taps []string

// Errors of Open.
var (
	ErrNotAllowed = errors.New("not among the taps that the daemon allows")
	// ErrBusy is returned if another process has the tap open. It is EBUSY as well.
	ErrBusy = fmt.Errorf("another process has it open: %w", syscall.EBUSY)
)

// CheckPattern returns an error if a name or a prefix is invalid.
func CheckPattern(p string) error {
	name, prefix := strings.CutSuffix(p, "*")
	if prefix && name == "" {
		return errors.New("want a prefix before the *: all devices are too many")
	}
	return CheckName(name)
}

// nameMax is IFNAMSIZ without the final zero.
const nameMax = 15

// CheckName returns an error if no tap can have the name.
func CheckName(name string) error {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:%*", r) } // % numbers new devices
	if name == "" || len(name) > nameMax || name == "." || name == ".." || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("want the name of a network device, of at most %d characters", nameMax)
	}
	return nil
}

// Allows reports whether the tap called name may be opened.
func (t Taps) Allows(name string) bool {
	return slices.ContainsFunc(t, func(p string) bool {
		prefix, is := strings.CutSuffix(p, "*")
		return p == name || is && prefix != "" && strings.HasPrefix(name, prefix)
	})
}

// Open opens an existing tap, and sets the descriptor up for frames with the header of the virtio
// device. It does not change the device itself: the operator controls the use of its frames.
func (t Taps) Open(name string) (*os.File, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if !t.Allows(name) {
		return nil, ErrNotAllowed
	}
	return open(name)
}
