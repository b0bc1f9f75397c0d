// Package rng is the virtio entropy device (virtio 1.2 §5.4). It fills guest buffers with random
// bytes from its source. It has no state; the VMM creates it. Guests forked from one snapshot must
// not get equal bytes, so the source must be the host's live generator. Only tests may use a seeded
// one.
package rng

import (
	"crypto/rand"
	"errors"
	"io"

	"github.com/forkd/forkd/internal/vm/virtio"
)

const (
	queueSize = 8
	// MaxRequest limits the bytes of one request, because a large buffer must not delay a pause.
	// The driver asks again.
	MaxRequest = 64 << 10
)

// Device is an entropy source behind a virtio transport.
type Device struct {
	virtio.Worker
	source io.Reader
}

var _ virtio.Device = (*Device)(nil)

// New returns a device drawing from source, or from the host's generator if source is nil.
func New(source io.Reader) *Device {
	if source == nil {
		source = rand.Reader
	}
	d := &Device{source: source}
	d.Init(d.serve)
	return d
}

// Type implements virtio.Device.
func (d *Device) Type() uint32 { return virtio.TypeEntropy }

// Features implements virtio.Device.
func (d *Device) Features() uint64 { return 0 }

// QueueSizes implements virtio.Device.
func (d *Device) QueueSizes() []uint16 { return []uint16{queueSize} }

// ReadConfig implements virtio.Device: there is no configuration space.
func (d *Device) ReadConfig(_ uint64, p []byte) { clear(p) }

// WriteConfig implements virtio.Device.
func (d *Device) WriteConfig(uint64, []byte) {}

// Activate implements virtio.Device.
func (d *Device) Activate(_ uint64, queues []*virtio.Queue) error {
	if len(queues) != 1 {
		return errors.New("an entropy device has one queue")
	}
	d.Start(queues[0])
	return nil
}

// Reset implements virtio.Device.
func (d *Device) Reset() { d.Stop() }

// Close implements virtio.Device.
func (d *Device) Close() error {
	d.Stop()
	return nil
}
