package rng

import (
	"errors"

	"github.com/forkd/forkd/internal/vm/virtio"
)

var errReadable = errors.New("entropy request with a readable buffer")

// parseRequest returns the number of bytes for the request.
func parseRequest(c *virtio.Chain) (int, error) {
	if len(c.Readable) > 0 { // virtio 1.2 §5.4.6.1
		return 0, errReadable
	}
	return min(c.Writable.Len(), MaxRequest), nil
}
