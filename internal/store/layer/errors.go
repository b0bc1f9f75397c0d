package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Sentinels for callers to branch on.
var (
	// ErrFormat: the bytes are not a layer, or of another format version.
	ErrFormat = errors.New("not a layer of a known format")
	// ErrDamaged: the file is truncated, has a wrong checksum, or its index is inconsistent.
	ErrDamaged = errors.New("layer is damaged")
	// ErrTooManyRuns: the layer is too fragmented to be mapped.
	ErrTooManyRuns = errors.New("layer has too many runs")
	// ErrNoSpace: the disk is full, or would be fuller than its owner allows.
	ErrNoSpace = errors.New("not enough disk space")
	// ErrChain: the layers do not form a chain.
	ErrChain = errors.New("layers are no chain")
)

// NoSpace wraps the error of a full disk in ErrNoSpace. It returns other errors unchanged.
func NoSpace(err error) error {
	if !errors.Is(err, ErrNoSpace) && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}
