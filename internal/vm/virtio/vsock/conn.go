package vsock

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// key names a connection. The addresses are always the host's and this guest's.
type key struct{ guest, host uint32 }

// phase is the progress of a connection.
type phase uint8

const (
	phaseDialing   phase = iota // the guest asked; the host end is being opened
	phaseRequested              // the host asked; the guest has not answered
	phaseOpen
)

// needs are the packets a connection has to send, in this order.
type needs uint8

const (
	needRequest needs = 1 << iota
	needResponse
	needCreditUpdate
	needCreditRequest
	needShutdown
)

var needOps = []struct {
	need needs
	op   uint16
}{
	{needRequest, opRequest},
	{needResponse, opResponse},
	{needCreditUpdate, opCreditUpdate},
	{needCreditRequest, opCreditRequest},
	{needShutdown, opShutdown},
}

var errRefused = errors.New("guest refused or reset the connection")

// conn is one connection. Its goroutine runs pump and closes the socket; other goroutines only mark
// it dead. The device's lock guards all fields except the channels.
type conn struct {
	d *Device
	key
	// wake holds a token after a change on the guest's side.
	wake chan struct{}
	// answered is closed when a requested connection is open or dead.
	answered chan struct{}

	sock Conn            // nil in phaseDialing
	raw  syscall.RawConn // of sock
	fd   int             // of sock; usable under the lock while not dead

	phase   phase
	dead    bool
	queued  bool // in outbox.control
	waiting bool // in outbox.waiters
	greet   bool // send the greeting to the host's client once the guest accepts
	need    needs

	hostDone  uint32 // shutdown flags to send, or sent, to the guest
	guestDone uint32 // shutdown flags received from the guest
	eof       bool   // the host sends no more

	// Guest to host. All counters are modulo 2^32 (virtio 1.2 §5.10.6.3).
	received  uint32 // bytes from the guest
	forwarded uint32 // the part of received written to the socket
	told      uint32 // the value of forwarded last sent to the guest
	backlog   []byte // bytes received and not forwarded
	flushing  bool   // a goroutine writes the backlog

	// Host to guest.
	sent         uint32
	guestBuf     uint32
	guestForward uint32
	asked        bool // asked for credit since it last ran out

	handed time.Time // when the guest last received host data; zero once it has answered

	next outcome // result of fill, for pump
}

func (d *Device) newConn(k key, p phase) *conn {
	c := &conn{d: d, key: k, phase: p, wake: make(chan struct{}, 1)}
	if d.conns == nil {
		d.conns = map[key]*conn{}
	}
	d.conns[k] = c
	d.live++
	d.wg.Add(1)
	return c
}

// GuestTime returns the time host data waited for the guest's next data on the same connection,
// summed over all connections. Data the guest never answers does not count.
func (d *Device) GuestTime() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.guestTime
}

// handedOver records the time at which the guest received data to answer. The last data counts.
func (c *conn) handedOver() { c.handed = time.Now() }

// answeredBack records the guest's answer.
func (c *conn) answeredBack() {
	if !c.handed.IsZero() {
		c.d.guestTime += time.Since(c.handed)
		c.handed = time.Time{}
	}
}

// attach gives c its socket.
func (c *conn) attach(sock Conn) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) { c.fd = int(fd) }); err != nil {
		return err
	}
	c.sock, c.raw = sock, raw
	return nil
}

// poke wakes the connection's goroutine if it waits for the guest.
func (c *conn) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// kill ends a connection. Its goroutine notices and closes the socket.
func (d *Device) kill(c *conn, tellGuest bool) {
	if c.dead {
		return
	}
	c.dead = true
	d.backlog -= len(c.backlog)
	c.backlog = nil
	if d.conns[c.key] == c {
		delete(d.conns, c.key)
		if tellGuest {
			d.out.addReset(c.key)
		}
	}
	if c.sock != nil {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // wakes pump and flush
	}
	if c.phase == phaseRequested {
		close(c.answered)
	}
	d.out.forget(c)
	c.poke()
}

func (d *Device) killAll(tellGuest bool) {
	for _, c := range d.conns {
		d.kill(c, tellGuest)
	}
}

// takeNeed builds the connection's next packet.
func (c *conn) takeNeed() header {
	for _, n := range needOps {
		if c.need&n.need != 0 {
			c.need &^= n.need
			h := c.header(n.op)
			if n.op == opShutdown {
				h.flags = c.hostDone
			}
			return h
		}
	}
	return c.header(opCreditUpdate) // unreachable: needOps lists every need
}

// header returns a packet header of this connection, with the guest's current credit.
func (c *conn) header(op uint16) header {
	h := headerOf(c.d.cid, c.key, op)
	h.bufAlloc, h.fwdBack = bufAlloc, c.forwarded
	c.told = c.forwarded
	return h
}

// credit returns the number of bytes the guest can take. If the guest claims to have consumed more
// than it got, it has no credit.
func (c *conn) credit() int {
	inFlight := c.sent - c.guestForward
	if inFlight >= c.guestBuf {
		return 0
	}
	return int(c.guestBuf - inFlight)
}

// creditBack sends the guest a credit update when its known credit is a quarter of the buffer below
// the actual one.
func (c *conn) creditBack() {
	if c.forwarded-c.told >= bufAlloc/4 {
		c.d.say(c, needCreditUpdate)
	}
}
