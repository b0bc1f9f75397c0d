package net

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/net/flows"
)

// Feature bits (virtio 1.2 §5.1.3). GuestECN is not offered: no engine sends unsplit segments with
// congestion marks.
const (
	featureCSUM       = 1 << 0
	featureGuestCSUM  = 1 << 1
	featureMTU        = 1 << 3
	featureMAC        = 1 << 5
	featureGuestTSO4  = 1 << 7
	featureGuestTSO6  = 1 << 8
	featureHostTSO4   = 1 << 11
	featureHostTSO6   = 1 << 12
	featureHostECN    = 1 << 13
	featureMergeRxBuf = 1 << 15
	featureStatus     = 1 << 16
	featureControl    = 1 << 17
	featureControlMAC = 1 << 23
	offeredFeatures   = featureCSUM | featureGuestCSUM | featureMTU | featureMAC | featureGuestTSO4 |
		featureGuestTSO6 | featureHostTSO4 | featureHostTSO6 | featureHostECN | featureMergeRxBuf |
		featureStatus | featureControl | featureControlMAC
)

const (
	queueSize        = 256
	controlQueueSize = 64

	etherSize = 14
	// maxFrame is the longest frame in either direction: an IP packet of any length behind an
	// Ethernet header with a VLAN tag.
	maxFrame = etherSize + 4 + 65535
)

// Config holds the settings of a device.
type Config struct {
	// MAC is the guest's hardware address until it sets another.
	MAC [6]byte
	// NewEngine creates the other end of the link when the guest sends its first frame, or at
	// Start. If nil, the guest's frames are not read.
	NewEngine func(Guest) Engine
	// Now is the device's clock; if nil, the host's.
	Now func() time.Time
}

// Device is a network device behind a virtio transport.
//
// Its locks are taken in the order of the fields. At most tx is held when the engine is called, so
// the engine may call Receive, which takes only rx.
type Device struct {
	newEngine func(Guest) Engine
	flows     *flows.Table
	// open is set while the guest's frames are read.
	open atomic.Bool
	// leaving is raised before the locks are taken to stop the work.
	leaving atomic.Int32

	tx transmitter
	rx receiver
}

// transmitter is the path from the guest.
type transmitter struct {
	mu       sync.Mutex    // held while guest memory is read and the engine works on it
	queue    *virtio.Queue // nil while not active
	control  *virtio.Queue
	features uint64 // negotiated
	paused   bool
	closed   bool
	engine   Engine // nil until the guest sends
	restored bool   // restored and not run since
	// inherited is the number of waiting frames from the guest's source.
	inherited int
	chain     virtio.Chain
	buffer    []byte // header and frame being sent
}

// receiver is the path to the guest.
type receiver struct {
	mu       sync.Mutex    // held while guest memory is written
	queue    *virtio.Queue // nil while not active
	features uint64        // negotiated
	paused   bool
	mac      [6]byte
	want     room // wanted by the engine
	// published is the number of buffers published when the last frame found too few.
	published uint16
	chains    []virtio.Chain // of one frame
	used      []virtio.Used
}

var (
	_ virtio.Device = (*Device)(nil)
	_ Guest         = (*Device)(nil)
)

// New returns a device. Call Close when done.
func New(cfg Config) *Device {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	d := &Device{newEngine: cfg.NewEngine, flows: flows.New(cfg.Now)}
	d.rx.mac = cfg.MAC
	return d
}

// Open makes the device read the guest's frames from now on. Until then they wait in the guest. The
// caller then makes the transport check the queues.
func (d *Device) Open() { d.open.Store(true) }

// Start creates the engine unless it exists, for a network that may speak before the guest does.
// The caller has opened the device.
func (d *Device) Start() {
	d.tx.mu.Lock()
	defer d.tx.mu.Unlock()
	d.startEngine()
}

// Wake is Start for a network that has begun to speak. A closed device ignores it.
func (d *Device) Wake() {
	if d.open.Load() {
		d.Start()
	}
}

// MAC returns the guest's hardware address.
func (d *Device) MAC() [6]byte {
	d.rx.mu.Lock()
	defer d.rx.mu.Unlock()
	return d.rx.mac
}

// startEngine reports whether there is an engine. The lock of tx is held.
func (d *Device) startEngine() bool {
	if d.tx.engine == nil && !d.tx.closed && d.newEngine != nil {
		d.tx.engine = d.newEngine(d)
	}
	return d.tx.engine != nil
}

// Type implements virtio.Device.
func (d *Device) Type() uint32 { return virtio.TypeNet }

// Features implements virtio.Device.
func (d *Device) Features() uint64 { return offeredFeatures }

// QueueSizes implements virtio.Device: receive, transmit, control.
func (d *Device) QueueSizes() []uint16 { return []uint16{queueSize, queueSize, controlQueueSize} }

// ReadConfig implements virtio.Device (virtio 1.2 §5.1.4).
func (d *Device) ReadConfig(off uint64, p []byte) {
	var c [12]byte
	d.rx.mu.Lock()
	copy(c[:], d.rx.mac[:])
	d.rx.mu.Unlock()
	binary.LittleEndian.PutUint16(c[6:], 1) // status: the link is up, always
	binary.LittleEndian.PutUint16(c[8:], 1) // pairs of queues
	binary.LittleEndian.PutUint16(c[10:], guestnet.MTU)
	clear(p)
	if off < uint64(len(c)) {
		copy(p, c[off:])
	}
}

// WriteConfig implements virtio.Device. No byte is writable.
func (d *Device) WriteConfig(uint64, []byte) {}

// Activate implements virtio.Device.
func (d *Device) Activate(features uint64, queues []*virtio.Queue) error {
	if len(queues) != 3 {
		return errors.New("a network device has three queues")
	}
	d.lock()
	defer d.unlock()
	d.rx.queue, d.tx.queue, d.tx.control = queues[0], queues[1], queues[2]
	d.rx.features, d.tx.features = features, features
	return nil
}

// Pause implements virtio.Device. The engine continues, but finds no room in the guest.
func (d *Device) Pause() {
	d.lock()
	defer d.unlock()
	d.tx.paused, d.rx.paused = true, true
}

// Resume implements virtio.Device.
func (d *Device) Resume() {
	d.flows.Start()
	d.lock()
	defer d.unlock()
	d.tx.paused, d.rx.paused = false, false
}

// Reset implements virtio.Device. The engine and the table of the guest's flows stay: the guest's
// connections outlive its driver.
func (d *Device) Reset() {
	d.lock()
	defer d.unlock()
	d.tx.queue, d.tx.control, d.tx.chain, d.tx.buffer = nil, nil, virtio.Chain{}, nil
	d.tx.restored, d.tx.inherited = false, 0
	d.rx.queue, d.rx.chains, d.rx.used = nil, nil, nil
	d.rx.want = d.rx.want.anew()
}

// Close implements virtio.Device. It ends the engine.
func (d *Device) Close() error {
	d.Reset()
	d.tx.mu.Lock()
	engine := d.tx.engine
	d.tx.engine, d.tx.closed = nil, true
	d.tx.mu.Unlock()
	if engine != nil {
		engine.Close() // under no lock: its goroutines may be in Receive
	}
	return nil
}

// lock takes both locks, soon even if the guest never stops sending.
func (d *Device) lock() {
	d.leaving.Add(1)
	d.tx.mu.Lock()
	d.leaving.Add(-1)
	d.rx.mu.Lock()
}

func (d *Device) unlock() {
	d.rx.mu.Unlock()
	d.tx.mu.Unlock()
}
