package layer

import (
	"errors"
	"fmt"
)

// Sentinels for callers to branch on.
var (
	// ErrFormat: the bytes are not a layer, or of another format version.
	ErrFormat = errors.New("not a layer of a known format")
	// ErrDamaged: the file is truncated, has a wrong checksum, or its index is inconsistent.
	ErrDamaged = errors.New("layer is damaged")
	// ErrTooManyRuns: the layer is too fragmented to be mapped.
	ErrTooManyRuns = errors.New("layer has too many runs")
	// ErrChain: the layers do not form a chain.
	ErrChain = errors.New("layers are no chain")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}
