package rng

import (
	"io"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// serve fills one request; virtio.Worker is the loop around it. An error of the source breaks the
// device, because returning a non-random buffer would be worse.
func (d *Device) serve(c *virtio.Chain) (written uint32, err error) {
	want, err := parseRequest(c)
	if err != nil {
		return 0, err
	}
	for _, b := range c.Writable {
		b = b[:min(len(b), want-int(written))]
		n, err := io.ReadFull(d.source, b)
		written += uint32(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
