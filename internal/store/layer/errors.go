package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Sentinels that callers branch on.
var (
	// ErrFormat: the bytes are no layer, or of another format version.
	ErrFormat = errors.New("not a layer of a known format")
	// ErrDamaged: cut short, a wrong checksum, or an index that makes no sense.
	ErrDamaged = errors.New("layer is damaged")
	// ErrTooManyRuns: the layer is too scattered to be mapped.
	ErrTooManyRuns = errors.New("layer has too many runs")
	// ErrNoSpace: the disk is full, or would be fuller than its owner allows.
	ErrNoSpace = errors.New("not enough disk space")
	// ErrChain: the layers do not lie on one another.
	ErrChain = errors.New("layers are no chain")
)

// NoSpace gives a full disk's error its sentinel; it leaves others as they are.
func NoSpace(err error) error {
	if !errors.Is(err, ErrNoSpace) && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}
