// Package vsock is the guest's virtio socket device (virtio 1.2 §5.10), entirely in user space. It
// owns the connection table, credit accounting and the splicing of host sockets to guest
// connections. It opens no host sockets; the caller's Dialer and listener do. The VMM creates one
// Device per machine.
//
// One lock guards everything. Goroutines take it inside their RawConn callbacks, so an operation
// waiting for them (closing a socket) must not happen under it: a dead connection's own goroutine
// closes its socket.
package vsock

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forkd/forkd/internal/vm/virtio"
)

const (
	// HostCID is the host's address (virtio 1.2 §5.10.4).
	HostCID = 2
	// MinGuestCID is the first address a guest may have.
	MinGuestCID = 3

	// MaxConns limits the connections of a device, including the ones being opened or flushed.
	// Further ones are refused with a reset.
	MaxConns = 1024
	// MaxDials limits the connections whose host end is being opened. This leaves room for
	// connections to a guest that keeps dialing.
	MaxDials = 128
	// bufAlloc is the credit a guest gets per connection: the limit of bytes waiting here for a
	// slow host reader.
	bufAlloc = 256 << 10
	// maxBacklog limits the bytes waiting in all connections together.
	maxBacklog = 32 << 20
	// maxResets limits the resets waiting for receive buffers. If a guest provokes more without
	// reading them, the excess is lost.
	maxResets = 2 * MaxConns

	queueSize      = 128
	eventQueueSize = 8

	featureStream = 1 << 0
)

// Conn is a host socket: a *net.UnixConn or *net.TCPConn. Data moves between its descriptor and
// guest memory directly.
type Conn interface {
	net.Conn
	syscall.Conn
}

// Dialer opens the host end of a guest's connection.
type Dialer interface {
	// DialHost connects to the server of the host's port. An error makes the guest's connect fail.
	// DialHost must return when ctx ends. The device closes the connection.
	DialHost(ctx context.Context, port uint32) (Conn, error)
}

// Config holds the settings of a device.
type Config struct {
	// CID is the guest's address; see SetCID.
	CID uint64
	// Dialer may be nil. The guest can then open no connections.
	Dialer Dialer
}

// Device is a socket device behind a virtio transport.
type Device struct {
	dialer Dialer
	// root ends the current dials at Close.
	root   context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines of connections
	// shaking counts clients before their CONNECT line.
	shaking atomic.Int32
	// leaving is raised before mu is taken to stop the transmit loop.
	leaving atomic.Int32

	mu            sync.Mutex // held while guest memory is accessed
	cid           uint64
	rx, tx, event *virtio.Queue // nil while not active
	paused        bool
	closed        bool
	conns         map[key]*conn
	live          int    // connections with a goroutine, at most MaxConns
	dialing       int    // of them, at most MaxDials
	nextPort      uint32 // host port to try for the next host connection
	backlog       int    // bytes waiting in all connections
	out           outbox
	reset         transportReset
	txChain       virtio.Chain
	rxChain       virtio.Chain
	scratch       virtio.Buffers
	guestTime     time.Duration // see GuestTime
}

var _ virtio.Device = (*Device)(nil)

// New returns a device. Call Close when done.
func New(cfg Config) *Device {
	d := &Device{dialer: cfg.Dialer, cid: cfg.CID, nextPort: firstPort}
	d.root, d.cancel = context.WithCancel(context.Background())
	return d
}

// Type implements virtio.Device.
func (d *Device) Type() uint32 { return virtio.TypeVsock }

// Features implements virtio.Device.
func (d *Device) Features() uint64 { return featureStream }

// QueueSizes implements virtio.Device: receive, transmit, event.
func (d *Device) QueueSizes() []uint16 { return []uint16{queueSize, queueSize, eventQueueSize} }

// ReadConfig implements virtio.Device: the guest's CID.
func (d *Device) ReadConfig(off uint64, p []byte) {
	d.mu.Lock()
	cid := d.cid
	d.mu.Unlock()
	var c [8]byte
	binary.LittleEndian.PutUint64(c[:], cid)
	clear(p)
	if off < uint64(len(c)) {
		copy(p, c[off:])
	}
}

// WriteConfig implements virtio.Device. No byte is writable.
func (d *Device) WriteConfig(uint64, []byte) {}

// SetCID sets the guest's address. It is for a restored device before it resumes: the guest reads
// the address again after the transport reset.
func (d *Device) SetCID(cid uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cid = cid
}

// Activate implements virtio.Device.
func (d *Device) Activate(_ uint64, queues []*virtio.Queue) error {
	if len(queues) != 3 {
		return errors.New("a socket device has three queues")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rx, d.tx, d.event = queues[0], queues[1], queues[2]
	return nil
}

// Pause implements virtio.Device. Host sockets stay open.
func (d *Device) Pause() {
	d.lockToStop()
	defer d.mu.Unlock()
	d.paused = true
}

// Resume implements virtio.Device.
func (d *Device) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = false
	for _, c := range d.conns {
		c.poke()
	}
}

// Reset implements virtio.Device. Host sockets are closed. The goroutines of connections may end a
// little later, but no longer access the guest.
func (d *Device) Reset() {
	d.lockToStop()
	defer d.mu.Unlock()
	d.killAll(false)
	d.rx, d.tx, d.event = nil, nil, nil
	d.txChain, d.rxChain, d.scratch = virtio.Chain{}, virtio.Chain{}, nil
	d.out = outbox{}
	d.reset.phase = resetDone
}

// Close implements virtio.Device. It does not end Serve; cancelling its context does.
func (d *Device) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.Reset()
	d.wg.Wait()
	return nil
}

func (d *Device) lockToStop() {
	d.leaving.Add(1)
	d.mu.Lock()
	d.leaving.Add(-1)
}

// running reports whether guest memory may be accessed. The lock is held.
func (d *Device) running() bool { return d.rx != nil && !d.paused }
