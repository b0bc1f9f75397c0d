package netd

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netproxy"
	"github.com/forkd/forkd/internal/net/netwire"
)

const (
	// nameLimit limits the wait for the first bytes of a flow that needs a name.
	nameLimit = 10 * time.Second
	// peekLimit limits it for a flow that continues without a name.
	peekLimit = 3 * time.Second
	// httpsPort is the port on which requests get headers and signatures.
	httpsPort = 443
	// attempts is the number of addresses of a name to dial.
	attempts = 4
)

// relayNamed accepts a flow, reads its host name, and judges the name. far is the connection if the
// address alone was allowed. It is nil if only the name can allow the flow.
func (f *flow) relayNamed(far *net.TCPConn) {
	near := f.nearEnd(netwire.StreamFDs)
	if near == nil {
		if far != nil {
			far.Close()
		}
		return
	}
	if far == nil { // there is no verdict to check again yet
		f.judged(Question{}, Verdict{}, "")
	}
	r := &relay{near: near, far: far, tell: f.tellEnd}
	if !f.begin(r.live(), true) {
		return
	}
	if head, ok := f.readName(r, far); ok {
		f.passNamed(r, head)
	}
}

// readName reads the first bytes, and connects to their destination.
func (f *flow) readName(r *relay, far *net.TCPConn) (netproxy.Head, bool) {
	limit := nameLimit
	if far != nil && f.asked.Far.Port() != httpsPort { // a client of TLS is the first to send, however slow its guest is
		limit = peekLimit
	}
	head, err := netproxy.Peek(r.near, limit)
	switch {
	case err != nil && far == nil:
		f.finish(true, control.Denied, "the host name decides, but the first bytes have none: "+err.Error())
		return head, false
	case err != nil: // its address alone was allowed
		return head, true
	}
	verdict := f.v.judge.Name(head.Name, f.asked.Far.Port())
	if verdict.Outcome != Allow {
		f.named(head, f.asked.Far, verdict)
		f.finish(true, control.Denied, verdict.Text)
		return head, false
	}
	return head, f.connectNamed(r, far, head, verdict)
}

// connectNamed keeps the connection if the name has its address. Otherwise it dials an address of
// the name.
func (f *flow) connectNamed(r *relay, far *net.TCPConn, head netproxy.Head, verdict Verdict) bool {
	if far != nil && f.v.judge.Attested(head.Name, f.asked.Far.Addr()) {
		return f.settle(head, f.asked.Far)
	}
	addrs, err := f.v.judge.Resolve(f.ctx, head.Name)
	if err != nil {
		f.named(head, f.asked.Far, verdict)
		noteFor(f, err)
		f.finish(true, control.Refused, "resolve "+head.Name+": "+err.Error())
		return false
	}
	if far != nil && slices.Contains(addrs, f.asked.Far.Addr()) {
		return f.settle(head, f.asked.Far)
	}
	c, to, err := f.dialNamed(head, addrs)
	if err != nil {
		_, outcome, text := reasonOf(err, false)
		f.named(head, to, verdict)
		noteFor(f, err)
		f.finish(true, outcome, text)
		return false
	}
	if far != nil {
		far.Close()
	}
	return r.setFar(c) && f.settle(head, to)
}

// settle records how a flow was judged, and judges it again, because the policy may have changed
// while the name was read.
func (f *flow) settle(head netproxy.Head, to netip.AddrPort) bool {
	q := Question{Protocol: netwire.TCP, Far: to, Name: head.Name}
	verdict := f.v.judge.Flow(q)
	f.judged(q, verdict, string(head.Source))
	if verdict.Outcome == Allow {
		return true
	}
	f.finish(true, control.Denied, verdict.Text)
	return false
}

// named records a name for the audit.
func (f *flow) named(head netproxy.Head, to netip.AddrPort, verdict Verdict) {
	verdict.Name = head.Name
	f.judged(Question{Protocol: netwire.TCP, Far: to, Name: head.Name}, verdict, string(head.Source))
}

// dialNamed dials the addresses of our own resolution of a name. Addresses of the flow's own family
// come first, otherwise in the given order.
func (f *flow) dialNamed(head netproxy.Head, addrs []netip.Addr) (*net.TCPConn, netip.AddrPort, error) {
	six := f.asked.Far.Addr().Is6()
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int {
		switch {
		case a.Is6() == b.Is6():
			return 0
		case a.Is6() == six:
			return -1
		}
		return 1
	})
	to := f.asked.Far
	err := fmt.Errorf("%s has no address", head.Name)
	for _, addr := range addrs[:min(len(addrs), attempts)] {
		to = netip.AddrPortFrom(addr, f.asked.Far.Port())
		q := Question{Protocol: netwire.TCP, Far: to, Name: head.Name}
		verdict := f.v.judge.Flow(q)
		if verdict.Outcome != Allow {
			err = fmt.Errorf("%w: %s", errFloor, verdict.Text)
			continue
		}
		var c net.Conn
		if c, err = f.v.dial(f.ctx, netwire.TCP, to, q, verdict); err == nil {
			return c.(*net.TCPConn), to, nil
		}
		if f.ctx.Err() != nil || errors.Is(err, errFloor) {
			break
		}
	}
	return nil, to, err
}

// passNamed sends the bytes already read to the far end, and then relays. Requests to hosts with
// headers or a signer go through the interceptor instead.
func (f *flow) passNamed(r *relay, head netproxy.Head) {
	if head.Source == netproxy.SNI && f.asked.Far.Port() == httpsPort {
		changed := f.v.judge.Headers(head.Name) != nil || f.v.judge.Signer(head.Name) != nil
		if changed && f.v.s.cfg.Intercept != nil {
			f.intercept(r, head)
			return
		}
	}
	r.far.SetWriteDeadline(time.Now().Add(nameLimit))
	if _, err := r.far.Write(head.Bytes); err != nil {
		f.end(true)
		return
	}
	r.far.SetWriteDeadline(time.Time{})
	f.pass(r, len(head.Bytes))
}
