package usernet

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// Config holds the settings of an engine.
type Config struct {
	// Guest is the other end of the link. When it calls Writable, and when Receive is called, no
	// lock needed by the other call may be held.
	Guest  virtionet.Guest
	Dialer Dialer // opens the far halves of flows
	MTU    int    // of the link, in bytes; 0 for guestnet.MTU
	Limits Limits // of this guest; zero fields get their defaults
	// Plain reports whether the guest takes no offload: frames to it then have all their checksums
	// and are no longer than the MTU. It is called once, at the guest's first packet. If nil, the
	// guest takes offload.
	Plain func() bool
	// Clock is the clock of the stack and the limits; if nil, the host's.
	Clock tcpip.Clock
}

// Engine is a guest's gateway. Until the guest's first packet it has no stack and no goroutine.
type Engine struct {
	cfg   Config
	count counters
	out   outbox
	mac   atomic.Uint64 // the guest's, from its last frame
	table table

	mu     sync.Mutex // guards the fields below; taken before table's
	stack  *stack.Stack
	link   *link
	syns   *tcp.Forwarder
	closed bool
}

var _ virtionet.Engine = (*Engine)(nil)

// New returns an engine. Its owner closes it.
func New(cfg Config) *Engine {
	orElse(&cfg.MTU, guestnet.MTU)
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Clock == nil {
		cfg.Clock = tcpip.NewStdClock()
	}
	e := &Engine{cfg: cfg}
	e.out = outbox{guest: cfg.Guest, limit: cfg.Limits.Queue, count: &e.count}
	e.table.init(cfg.Limits, &e.count, e.now)
	e.mac.Store(macBits(broadcastMAC))
	return e
}

func (e *Engine) now() time.Time { return e.cfg.Clock.Now() }

// Stats returns the engine's counts.
func (e *Engine) Stats() Stats {
	s := e.count.stats()
	s.Flows, s.Dials = e.table.sizes()
	return s
}

// Writable implements virtionet.Engine.
func (e *Engine) Writable() { e.out.drain() }

// Transmit implements virtionet.Engine.
func (e *Engine) Transmit(h virtionet.Header, frame []byte) {
	e.count.frames.Add(1)
	e.count.bytes.Add(uint64(len(frame)))
	if len(frame) < header.EthernetMinimumSize || len(frame) > frameMax {
		e.count.badFrames.Add(1)
		return
	}
	to, from := MAC(frame), MAC(frame[6:])
	if from.isGroup() || from == gatewayMAC {
		e.count.badFrames.Add(1)
		return
	}
	e.mac.Store(macBits(from))
	if to != gatewayMAC && !to.isGroup() {
		e.count.ignored.Add(1)
		return
	}
	payload := frame[header.EthernetMinimumSize:]
	switch tcpip.NetworkProtocolNumber(binary.BigEndian.Uint16(frame[12:])) {
	case header.ARPProtocolNumber:
		e.answer(arpReply(payload))
	case header.IPv4ProtocolNumber:
		p, err := parseIPv4(payload)
		e.packet(h, p, from, err)
	case header.IPv6ProtocolNumber:
		p, err := parseIPv6(payload)
		e.packet(h, p, from, err)
	default:
		e.count.ignored.Add(1)
	}
}

// answer sends the guest a frame, or counts the missing answer.
func (e *Engine) answer(frame []byte) {
	if frame == nil {
		e.count.ignored.Add(1)
		return
	}
	e.out.send(virtionet.Header{}, frame)
}

// packet checks an IP packet and passes it to its handler.
func (e *Engine) packet(h virtionet.Header, p packet, from MAC, err error) {
	if err == nil {
		err = checkOffload(h, p.segment, len(p.bytes), e.cfg.MTU)
	}
	switch {
	case err != nil:
		e.count.badFrames.Add(1)
	case p.isNeighbor():
		e.answer(neighborReply(p, from))
	case !mayBeGuests(p.src):
		e.count.spoofed.Add(1)
	case isGroupAddress(p.dst), !p.isForStack():
		e.count.ignored.Add(1)
	case p.isEchoRequest() && !isGateway(p.dst):
		e.echo(p)
	default:
		e.deliver(p)
	}
}

func (e *Engine) deliver(p packet) {
	if l := e.wire(); l != nil {
		l.deliver(networkOf(p.src), p.bytes)
	}
}

// wire returns the stack's end of the link, created at first use. It returns nil once the engine is
// closed.
func (e *Engine) wire() *link {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	if e.link == nil {
		e.startLocked()
	}
	return e.link
}

func (e *Engine) startLocked() {
	l := &link{
		mtu: uint32(e.cfg.MTU), out: &e.out, mac: &e.mac,
		plain: e.cfg.Plain != nil && e.cfg.Plain(),
	}
	s, err := newStack(l, e.cfg.Limits, e.cfg.Clock)
	if err != nil {
		panic("the stack refuses its own settings: " + err.Error())
	}
	e.stack, e.link = s, l
	// One more than the limit of flows: the table does the refusing.
	e.syns = tcp.NewForwarder(s, 0, e.cfg.Limits.Flows+1, e.connect)
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, e.unknownTCP)
	s.SetTransportProtocolHandler(udp.ProtocolNumber, e.datagram)
}

// abortEvery is the interval at which Close aborts connections that began meanwhile.
const abortEvery = 10 * time.Millisecond

// Close implements virtionet.Engine. It is idempotent.
func (e *Engine) Close() {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	s := e.stack
	e.mu.Unlock()
	e.out.close()
	ended := e.table.close()
	if s == nil {
		<-ended
		return
	}
	e.abortUntil(s, ended)
	if first {
		s.Close()
		s.Wait()
	}
}

// abortUntil aborts connections repeatedly: a dial may succeed at this moment and still create one.
func (e *Engine) abortUntil(s *stack.Stack, ended <-chan struct{}) {
	again := time.NewTicker(abortEvery)
	defer again.Stop()
	for {
		for _, ep := range s.RegisteredEndpoints() {
			ep.Abort()
		}
		select {
		case <-ended:
			return
		case <-again.C:
		}
	}
}

func macBits(m MAC) uint64 {
	return uint64(binary.BigEndian.Uint16(m[:]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))
}

func macOf(bits uint64) (m MAC) {
	binary.BigEndian.PutUint16(m[:], uint16(bits>>32))
	binary.BigEndian.PutUint32(m[2:], uint32(bits))
	return m
}

// flowOf returns the flow of an id of the stack. The local end is the far end.
func flowOf(p Protocol, id stack.TransportEndpointID) Flow {
	return Flow{
		Protocol: p,
		Guest:    netip.AddrPortFrom(fromStack(id.RemoteAddress), id.RemotePort),
		Far:      netip.AddrPortFrom(fromStack(id.LocalAddress), id.LocalPort),
	}
}
