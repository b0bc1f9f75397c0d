// Package blk is the virtio block device (virtio 1.2 §5.2). It parses and validates requests. It
// does not open, close or cache the backing, which the VMM provides already open. The VMM creates
// one Device per disk.
//
// Data moves between the backing and guest memory without a copy, so a guest may change a buffer
// during a write. It only harms its own disk.
package blk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// SectorSize is the unit of the device's addresses, independent of the backing.
const SectorSize = 512

const (
	queueSize = 128
	// segMax leaves room for the header and the status byte in a chain.
	segMax = queueSize - 2
	// idSize is the length of the serial number (virtio 1.2 §5.2.6).
	idSize = 20
	// Limits of discard and write-zeroes, in segments and sectors.
	maxDiscardSegs    = 16
	maxDiscardSectors = 1 << 22
)

// Feature bits (virtio 1.2 §5.2.3).
const (
	featureSegMax      = 1 << 2
	featureReadOnly    = 1 << 5
	featureBlockSize   = 1 << 6
	featureFlush       = 1 << 9
	featureDiscard     = 1 << 13
	featureWriteZeroes = 1 << 14
)

// Backend holds the disk's bytes. One goroutine uses it at a time. A short read is an I/O error for
// the guest. If the backend returns virtio.ErrLater, it receives the entire request again at the
// next Kick.
type Backend interface {
	io.ReaderAt
	io.WriterAt
	// Size returns the length in bytes. It is called once.
	Size() int64
	// Flush makes finished writes durable.
	Flush() error
}

// Discarder is a Backend that can drop ranges. For other backends the device offers neither DISCARD
// nor WRITE_ZEROES.
type Discarder interface {
	// Discard drops the range, because its content is no longer needed.
	Discard(off, n int64) error
	// WriteZeroes makes the range read as zeroes. It must not allocate space for them.
	WriteZeroes(off, n int64) error
}

// vectored is a Backend that moves several buffers in one call. It either moves all bytes or
// returns an error.
type vectored interface {
	ReadVecAt(bufs [][]byte, off int64) error
	WriteVecAt(bufs [][]byte, off int64) error
}

// Config describes a disk.
type Config struct {
	Backend Backend // already open; the device does not close it
	// ReadOnly refuses every write, whatever the driver tries.
	ReadOnly bool
	// ID is the serial number shown to the guest, truncated to 20 bytes.
	ID string
}

// Device is a disk behind a virtio transport.
type Device struct {
	virtio.Worker
	// backing changes once at most: a slot gets its disk.
	backing atomic.Pointer[backing]
	slot    bool // made by NewSlot
	id      [idSize]byte
	scratch virtio.Buffers // the data of the current request
}

// backing is the disk behind a device.
type backing struct {
	Backend
	discard  Discarder // nil if not offered
	readOnly bool
	sectors  uint64
}

var _ virtio.Device = (*Device)(nil)

// New creates a disk. The caller closes the backend, after the device.
func New(cfg Config) (*Device, error) {
	size := cfg.Backend.Size()
	if size < 0 {
		return nil, fmt.Errorf("disk size is %d", size)
	}
	b := &backing{Backend: cfg.Backend, readOnly: cfg.ReadOnly, sectors: uint64(size) / SectorSize}
	if !cfg.ReadOnly {
		b.discard, _ = cfg.Backend.(Discarder)
	}
	d := &Device{}
	d.backing.Store(b)
	copy(d.id[:], cfg.ID)
	d.Init(d.serve)
	return d, nil
}

// Type implements virtio.Device.
func (d *Device) Type() uint32 { return virtio.TypeBlock }

// QueueSizes implements virtio.Device.
func (d *Device) QueueSizes() []uint16 { return []uint16{queueSize} }

// Features implements virtio.Device.
func (d *Device) Features() uint64 {
	f := uint64(featureSegMax | featureBlockSize | featureFlush)
	b := d.backing.Load()
	if b.readOnly {
		f |= featureReadOnly
	}
	if d.offersDiscard(b) {
		f |= featureDiscard | featureWriteZeroes
	}
	return f
}

// ReadConfig implements virtio.Device.
func (d *Device) ReadConfig(off uint64, p []byte) {
	c := d.config()
	clear(p)
	if off < uint64(len(c)) {
		copy(p, c[off:])
	}
}

// config returns the configuration space (virtio 1.2 §5.2.4).
func (d *Device) config() (c [60]byte) {
	b := d.backing.Load()
	binary.LittleEndian.PutUint64(c[0:], b.sectors)
	binary.LittleEndian.PutUint32(c[12:], segMax)
	binary.LittleEndian.PutUint32(c[20:], SectorSize)
	binary.LittleEndian.PutUint16(c[34:], 1) // num_queues
	if d.offersDiscard(b) {
		binary.LittleEndian.PutUint32(c[36:], maxDiscardSectors)
		binary.LittleEndian.PutUint32(c[40:], maxDiscardSegs)
		binary.LittleEndian.PutUint32(c[44:], 1) // alignment, in sectors
		binary.LittleEndian.PutUint32(c[48:], maxDiscardSectors)
		binary.LittleEndian.PutUint32(c[52:], maxDiscardSegs)
		c[56] = 1 // write-zeroes may unmap
	}
	return c
}

// WriteConfig implements virtio.Device. No byte is writable.
func (d *Device) WriteConfig(uint64, []byte) {}

// Activate implements virtio.Device.
func (d *Device) Activate(_ uint64, queues []*virtio.Queue) error {
	if len(queues) != 1 {
		return errors.New("a disk has one queue")
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
