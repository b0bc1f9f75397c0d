package flows

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// MaxTCP and MaxUDP are the numbers of flows followed by a table. The state of as many fits
	// into a device's section.
	MaxTCP = 1024
	MaxUDP = 256
	// Quarantine is the time for which the guest must not have used an inherited UDP flow before it
	// may use it again.
	Quarantine = 5 * time.Minute
)

// connection holds the values for a TCP connection's reset. Sequence numbers wrap.
type connection struct {
	// sent is the end of the guest's sent data.
	sent uint32
	// ack is the guest's last acknowledgement, and next the end of the data received without a gap.
	// Its kernel expects one of them next: ack lags behind, and data in between may have been
	// dropped before the socket.
	ack, next uint32
	flags     uint8
}

// Flags of a connection.
const (
	heard    = 1 << iota // the far end has spoken: ack and next are valid
	guestFIN             // the guest has sent all
	farFIN               // the guest has received the far end's last byte
	finAcked             // the far end has acknowledged guestFIN

	allFlags = heard | guestFIN | farFIN | finAcked
)

// session is a UDP flow.
type session struct{ used time.Time }

// inherited is a connection waiting to be reset.
type inherited struct {
	key key
	connection
	again bool // next was tried, and ack is the other possibility
}

// Table follows the flows of one guest.
type Table struct {
	now func() time.Time

	mu          sync.Mutex // guards the fields below
	peer        [6]byte    // hardware address of the guest's other end
	connections book[connection]
	sessions    book[session]
	// quarantine has the guest's inherited sessions. used is the time of its last attempt, or of
	// the guest's start; zero before that.
	quarantine book[session]
	resets     []inherited
	reply      []byte // the last answer of Sent; nil until there was one
	reset      []byte // the last frame of Reset; nil without one
}

// New returns an empty table. Its clock is now.
func New(now func() time.Time) *Table {
	return &Table{
		now: now, connections: newBook[connection](MaxTCP),
		sessions: newBook[session](MaxUDP), quarantine: newBook[session](MaxUDP),
	}
}

// Start is called when the guest begins to run. Quarantines count from here, and not while a
// restored guest waits for use.
func (t *Table) Start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.quarantine.each(func(_ key, s *session) {
		if s.used.IsZero() {
			s.used = now
		}
	})
}

// Inherit processes a frame a restored guest's source was about to send. Its session belongs to the
// source as well. A connection needs no entry: the guest's engine does not know it, unless it is
// being opened, and then it is the guest's own.
func (t *Table) Inherit(frame []byte) {
	p, ok := parse(frame, true)
	if !ok || p.proto != protoUDP || onWire(p.key.far) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quarantine.add(p.key).used = t.now()
}

// Sent processes a frame of the guest. If it must not leave, pass is false and the guest gets the
// answer, which is valid until the next call.
func (t *Table) Sent(frame []byte) (answer []byte, pass bool) {
	p, ok := parse(frame, true)
	if !ok {
		return nil, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.peer = [6]byte(frame); p.proto == protoTCP {
		t.segmentSent(&p)
		return nil, true
	}
	if t.quarantined(&p) {
		return t.unreachable(frame, &p), false
	}
	t.datagram(&p)
	return nil, true
}

// Delivered processes a frame received by the guest.
func (t *Table) Delivered(frame []byte) {
	p, ok := parse(frame, false)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.peer = [6]byte(frame[6:]); p.proto == protoTCP {
		t.segmentDelivered(&p)
		return
	}
	t.datagram(&p)
}

// after reports whether a comes after b in a wrapping sequence.
func after(a, b uint32) bool { return int32(a-b) > 0 }

func (t *Table) segmentSent(p *packet) {
	if p.flags&flagRST != 0 {
		t.connections.remove(p.key)
		return
	}
	c := t.connections.get(p.key)
	if c == nil || p.flags&flagSYN != 0 {
		c = t.connections.add(p.key)
		c.sent = p.end()
	}
	if after(p.end(), c.sent) {
		c.sent = p.end()
	}
	if p.flags&flagFIN != 0 {
		c.flags |= guestFIN
	}
	if p.flags&flagACK != 0 {
		c.hear(p.ack)
	}
	t.forgetEnded(p.key, c)
}

// hear records the guest's own acknowledgement as the next expected byte.
func (c *connection) hear(ack uint32) {
	if c.flags&heard == 0 {
		c.ack, c.next = ack, ack
		c.flags |= heard
	}
	if after(ack, c.ack) {
		c.ack = ack
	}
	if after(ack, c.next) {
		c.next = ack
	}
}

func (t *Table) segmentDelivered(p *packet) {
	if p.flags&flagRST != 0 {
		t.connections.remove(p.key)
		return
	}
	c := t.connections.get(p.key)
	switch {
	case c == nil && p.flags&flagSYN == 0:
		return // the guest's side is unknown
	case c == nil:
		c = t.connections.add(p.key)
	}
	if p.flags&flagSYN != 0 && c.flags&heard == 0 {
		c.hear(p.seq + 1)
	}
	if c.flags&heard != 0 && !after(p.seq, c.next) { // otherwise a gap precedes it
		if after(p.end(), c.next) {
			c.next = p.end()
		}
		if p.flags&flagFIN != 0 {
			c.flags |= farFIN
		}
	}
	if p.flags&flagACK != 0 && c.flags&guestFIN != 0 && p.ack == c.sent {
		c.flags |= finAcked
	}
	t.forgetEnded(p.key, c)
}

// forgetEnded drops a connection once both sides have closed and acknowledged.
func (t *Table) forgetEnded(k key, c *connection) {
	if c.flags == allFlags && c.ack == c.next {
		t.connections.remove(k)
	}
}

// datagram follows a UDP flow.
func (t *Table) datagram(p *packet) {
	if onWire(p.key.far) {
		return
	}
	s := t.sessions.get(p.key)
	if s == nil {
		s = t.sessions.add(p.key)
	}
	s.used = t.now()
}

// onWire reports whether an address is valid only on this link. A clone has another neighbour there
// than its source, so there is no session to share.
func onWire(far [16]byte) bool {
	a := netip.AddrFrom16(far).Unmap()
	return a.IsLinkLocalUnicast() || a.IsMulticast() || wirePrefix.Contains(a) || a == broadcast
}

var (
	wirePrefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 0, 0}), 24) // RFC 6890, RFC 7335
	broadcast  = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

// quarantined reports whether the guest must not use a flow, and records the attempt.
func (t *Table) quarantined(p *packet) bool {
	if t.quarantine.len() == 0 {
		return false
	}
	s := t.quarantine.get(p.key)
	if s == nil {
		return false
	}
	now := t.now()
	if !s.used.IsZero() && now.Sub(s.used) >= Quarantine {
		t.quarantine.remove(p.key)
		return false
	}
	s.used = now
	return true
}
