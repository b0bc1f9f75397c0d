// Package balloon implements the part of the virtio memory balloon device (virtio 1.2 §5.5) needed
// by free page reporting: the guest reports its free memory, and the device passes it to the given
// function. The device never requests memory: its balloon has size 0. Pages inflated all the same
// are answered and kept.
//
// The guest may use reported memory as soon as the report is answered, so memory must be discarded
// before the answer or not at all.
package balloon

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// Queues (virtio 1.2 §5.5.2). For a driver with neither statistics nor hints, the specification has
// reports in queue 4. Linux numbered its queues without gaps, so it used 2, and still tries 3, like
// QEMU. The device accepts reports on all of these.
const (
	queueReports = 2 // the first possible queue of reports
	queues       = 5

	// queueSize is the size of a Linux report, in chunks. Linux takes no smaller queue.
	queueSize = 32
)

// featureReporting offers free page reporting (virtio 1.2 §5.5.3). VIRTIO_BALLOON_F_PAGE_POISON is
// not offered: a guest relying on its writes to a free page then does not negotiate reporting
// (§5.5.6.7.1), so every report leaves the content of its pages to the device.
const featureReporting = 1 << 5

// Config space (virtio 1.2 §5.5.4): the requested size of the balloon, always 0, and the actual
// size.
const (
	configActual = 4
	configSize   = 8
)

// Config holds the settings of a device.
type Config struct {
	// Discard returns whole pages of guest memory to the host. It decides the content the guest
	// reads there afterwards, and may do nothing. It must not call back.
	Discard func(gpa virtio.GPA, n int64)
}

// Device is a balloon behind a virtio transport.
type Device struct {
	workers [queues]virtio.Worker
	discard func(gpa virtio.GPA, n int64)
	actual  atomic.Uint32 // size of the balloon reported by the driver, in pages
}

var _ virtio.Device = (*Device)(nil)

// New returns a device.
func New(cfg Config) *Device {
	d := &Device{discard: cfg.Discard}
	for i := range d.workers {
		w := &d.workers[i]
		if i < queueReports {
			w.InitByAddress(func(*virtio.Chain) (uint32, error) { return 0, nil })
		} else {
			w.InitByAddress(func(c *virtio.Chain) (uint32, error) { return d.report(c, w.Leaving) })
		}
	}
	return d
}

// Type implements virtio.Device.
func (d *Device) Type() uint32 { return virtio.TypeBalloon }

// Features implements virtio.Device.
func (d *Device) Features() uint64 { return featureReporting }

// QueueSizes implements virtio.Device.
func (d *Device) QueueSizes() []uint16 {
	return []uint16{queueSize, queueSize, queueSize, queueSize, queueSize}
}

// ReadConfig implements virtio.Device.
func (d *Device) ReadConfig(off uint64, p []byte) {
	var config [configSize]byte
	binary.LittleEndian.PutUint32(config[configActual:], d.actual.Load())
	clear(p)
	if off < configSize {
		copy(p, config[off:])
	}
}

// WriteConfig implements virtio.Device.
func (d *Device) WriteConfig(off uint64, p []byte) {
	if off == configActual && len(p) == 4 {
		d.actual.Store(binary.LittleEndian.Uint32(p))
	}
}

// Activate implements virtio.Device.
func (d *Device) Activate(_ uint64, list []*virtio.Queue) error {
	if len(list) != queues {
		return fmt.Errorf("a balloon has %d queues", queues)
	}
	for i, q := range list {
		d.workers[i].Start(q)
	}
	return nil
}

// Kick implements virtio.Device.
func (d *Device) Kick() { d.each((*virtio.Worker).Kick) }

// Pause implements virtio.Device.
func (d *Device) Pause() { d.each((*virtio.Worker).Pause) }

// Resume implements virtio.Device.
func (d *Device) Resume() { d.each((*virtio.Worker).Resume) }

// Reset implements virtio.Device.
func (d *Device) Reset() {
	d.each((*virtio.Worker).Stop)
	d.actual.Store(0)
}

// Close implements virtio.Device.
func (d *Device) Close() error {
	d.Reset()
	return nil
}

func (d *Device) each(do func(*virtio.Worker)) {
	for i := range d.workers {
		do(&d.workers[i])
	}
}
