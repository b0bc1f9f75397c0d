package images

import (
	"context"
	"io"
	"time"

	"github.com/forkd/forkd/api"
)

// Image is a built image in the daemon's store.
type Image struct {
	Name        string    // unique in the store
	Digest      string    // sha256:<hex>
	SizeBytes   int64     // sum of its files
	CreatedAt   time.Time // when this copy came into the store
	Kernel      string    // release of its kernel
	MemoryMiB   int       // default memory of a guest
	VCPUs       int       // default number of virtual CPUs
	Description string    // as in its recipe; may be empty
	Start       string    // command line of its service; may be empty

	Container *api.ImageContainer // nil for an image of a recipe
}

// Store is the daemon's image store. Its errors wrap the sentinels of package sandbox.
type Store interface {
	ListImages(ctx context.Context) ([]Image, error)
	GetImage(ctx context.Context, name string) (Image, error)
	RemoveImage(ctx context.Context, name string) error
	// ImportImage reads a tar stream to its end. If digest is not empty, the content must match it.
	// On failure ImportImage leaves no files.
	ImportImage(ctx context.Context, name, digest string, tar io.Reader) (Image, error)
}
