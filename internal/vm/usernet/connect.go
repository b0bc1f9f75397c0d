package usernet

import (
	"context"
	"errors"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// connection is a TCP flow, from the guest's SYN on.
type connection struct {
	ctx    context.Context // of the dial; cancelled by stop
	cancel context.CancelFunc
	seq    uint32 // of the guest's SYN; an ICMP answer quotes it
}

func (c *connection) stop()                        { c.cancel() }
func (c *connection) idleSince() (time.Time, bool) { return time.Time{}, false }

// unknownTCP handles segments outside of connections. If it leaves one to the stack, the stack
// answers with an RST, unless the segment is one.
func (e *Engine) unknownTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	h := header.TCP(pkt.TransportHeader().Slice())
	f := flowOf(TCP, id)
	known := e.table.get(f)
	if h.Flags().Contains(header.TCPFlagRst) {
		if known != nil {
			known.stop() // the guest gave up before the answer
		}
		return false
	}
	if h.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return false
	}
	if known != nil {
		return true // a retransmission during the dial
	}
	c := &connection{seq: h.SequenceNumber()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if !e.table.add(f, c) {
		c.cancel()
		return false
	}
	if !e.syns.HandlePacket(id, pkt) {
		c.cancel()
		e.table.dialed()
		e.table.remove(f, c)
		return false
	}
	return true
}

// connect dials for a SYN, in its own goroutine, and answers it.
func (e *Engine) connect(r *tcp.ForwarderRequest) {
	f := flowOf(TCP, r.ID())
	c, ok := e.table.get(f).(*connection)
	if !ok {
		r.Complete(true)
		return
	}
	defer e.table.remove(f, c)
	defer c.cancel()
	far, err := e.dialTCP(c, f)
	e.table.dialed()
	if err != nil {
		r.Complete(e.refuseTCP(f, c, err))
		return
	}
	var events waiter.Queue
	ep, failed := r.CreateEndpoint(&events)
	r.Complete(false)
	if failed != nil { // the guest has given up
		far.Abort()
		return
	}
	e.count.opened.Add(1)
	e.splice(c, ep, &events, far)
}

func (e *Engine) dialTCP(c *connection, f Flow) (Stream, error) {
	ctx, cancel := context.WithTimeout(c.ctx, e.cfg.Limits.DialTime)
	defer cancel()
	far, err := e.cfg.Dialer.DialTCP(ctx, f)
	if err == nil && c.ctx.Err() != nil {
		far.Abort()
		return nil, c.ctx.Err()
	}
	return far, err
}

// refuseTCP refuses a guest's connection, and reports whether to send an RST.
func (e *Engine) refuseTCP(f Flow, c *connection, err error) (reset bool) {
	if c.ctx.Err() != nil {
		return true
	}
	e.count.refused.Add(1)
	switch reason := reasonOf(err); reason {
	case TimedOut:
		return false
	case HostUnreachable, NetUnreachable:
		e.unreachable(f, reason, quoteTCP(f, c.seq))
		return false
	default:
		return true
	}
}

// reasonOf returns the reason by which a dialer's error appears to the guest.
func reasonOf(err error) Reason {
	var r *Refusal
	switch {
	case errors.As(err, &r):
		return r.Reason
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	}
	return Reset
}

// splice carries bytes both ways until both ends are done, or one is gone.
func (e *Engine) splice(c *connection, ep tcpip.Endpoint, events *waiter.Queue, far Stream) {
	if e.table.takeLarge() {
		defer e.table.dropLarge()
	} else {
		ep.SocketOptions().SetReceiveBufferSize(bufferSmall, true)
		ep.SocketOptions().SetSendBufferSize(bufferSmall, true)
	}
	s := newSplice(ep, events, far)
	defer s.end()
	stopped := context.AfterFunc(c.ctx, far.Abort) // the engine closes: its stack ends the guest's side
	s.run()
	stopped()
	if !s.broken.Load() {
		s.linger(e.cfg.Limits.Linger)
	}
}
