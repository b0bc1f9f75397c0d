package hub

import (
	"errors"
	"fmt"
)

// Sentinels for callers to branch on.
var (
	// ErrInvalid: the bytes are not a snapshot of a known format, or were changed.
	ErrInvalid = errors.New("bad snapshot")
	// ErrSecret: the content holds a secret that is still valid.
	ErrSecret = errors.New("the snapshot holds a secret")
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}
