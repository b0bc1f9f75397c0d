// Package balloon is the virtio memory balloon device (virtio 1.2 §5.5) as far as free page
// reporting needs it: the guest tells which of its memory is free, and the device hands that to the
// function it is given. It asks the guest for nothing: its balloon is of no size, and what is
// inflated all the same is answered and kept. The trap: the guest may use what it reported as soon
// as the report is answered, so all of it is discarded before, or never.
package balloon

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// Queues (virtio 1.2 §5.5.2). A driver that negotiates no statistics and no hints has reports in
// queue 4 by the specification. Linux gave its queues numbers without gaps, so that it was 2, and
// still tries 3, as QEMU has it: reports are taken from all of these.
const (
	queueReports = 2 // the first one that may be that of reports
	queues       = 5

	// queueSize is that of a report as Linux makes it, in chunks: it takes no smaller queue.
	queueSize = 32
)

// featureReporting offers free page reporting (virtio 1.2 §5.5.3). VIRTIO_BALLOON_F_PAGE_POISON is
// not offered: a guest that expects of a free page what it has written there does not negotiate
// reporting then (§5.5.6.7.1), so that every report leaves the content of its pages to the device.
const featureReporting = 1 << 5

// Config space (virtio 1.2 §5.5.4): how large the balloon should be, always 0, and how large it is.
const (
	configActual = 4
	configSize   = 8
)

// Config is what the device is made from.
type Config struct {
	// Discard gives memory of the guest, whole pages, back to the host. What the guest reads there
	// afterwards is left to it, and it may do nothing. It must not call back.
	Discard func(gpa virtio.GPA, n int64)
}

// Device is a balloon behind a virtio transport.
type Device struct {
	workers [queues]virtio.Worker
	discard func(gpa virtio.GPA, n int64)
	actual  atomic.Uint32 // size of the balloon as the driver tells, in pages
}

var _ virtio.Device = (*Device)(nil)

// New makes a device.
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
