package ociimage

import (
	"errors"
	"fmt"
)

// Errors that callers branch on.
var (
	// ErrInvalid is wrapped by errors about the content of an image.
	ErrInvalid = errors.New("bad image")
	// ErrPlatform is wrapped if an image has no part for linux/amd64.
	ErrPlatform = errors.New("no image for linux/amd64")
	// ErrNotFound is wrapped if a registry or a file does not have an image.
	ErrNotFound = errors.New("not found")
	// ErrRegistry is wrapped by failures of a registry or of the network.
	ErrRegistry = errors.New("registry")
)

// Limits bound the resources for one image. Zero values are replaced by DefaultLimits.
type Limits struct {
	Layers     int   // number of layers
	Entries    int   // files and folders of all layers, with implied folders
	Unpacked   int64 // bytes of all layers after decompression, and of all files
	Compressed int64 // bytes of all layers before decompression
	Metadata   int64 // bytes of names, link targets and attributes
	Slack      int64 // bytes that a layer may have after decompression, however small it is
	Ratio      int64 // factor by which a larger layer may grow in decompression
}

// DefaultLimits are above every common image, and below the limits of a usual host.
var DefaultLimits = Limits{
	Layers: 127, Entries: 2_000_000, Unpacked: 32 << 30, Compressed: 16 << 30, Metadata: 256 << 20,
	Slack: 1 << 30, Ratio: 100,
}

const (
	maxManifest = 4 << 20 // bytes, as registries limit it
	maxConfig   = 8 << 20
	maxPath     = 4096        // bytes of a path, as in Linux
	maxDepth    = 2048        // folders below each other
	maxLinks    = 40          // symbolic links in a path, as in Linux
	maxWork     = 500_000_000 // steps through the tree
	maxNested   = 3           // indexes in indexes
	maxVariants = 1000        // images in an index
)

func (l Limits) complete() Limits {
	d := DefaultLimits
	setDefault(&l.Layers, d.Layers)
	setDefault(&l.Entries, d.Entries)
	setDefault(&l.Unpacked, d.Unpacked)
	setDefault(&l.Compressed, d.Compressed)
	setDefault(&l.Metadata, d.Metadata)
	setDefault(&l.Slack, d.Slack)
	setDefault(&l.Ratio, d.Ratio)
	return l
}

func setDefault[T int | int64](v *T, to T) {
	if *v == 0 {
		*v = to
	}
}

// invalid returns an error that wraps ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}
