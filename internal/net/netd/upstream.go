package netd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/net/upstream"
)

// viaUpstream reports whether an allowed flow goes through the operator's proxy or the policy's own. A flow to the
// host itself does not: it uses the operator's own address, which a proxy may not know.
func (v *vm) viaUpstream(verdict Verdict) bool {
	return !verdict.Dial.IsValid() && (v.s.cfg.Upstream != nil || verdict.Via != nil)
}

// dialUpstream connects to a judged address through the proxies: the policy's own, which is itself reached through the
// operator's. It checks the address again, as dial does. The address of the operator's proxy is not judged, because
// guests do not choose it and cannot reach it this way.
func (v *vm) dialUpstream(ctx context.Context, to netip.AddrPort, q Question, verdict Verdict) (net.Conn, error) {
	if err := v.lookAgain(netwire.TCP, to, q, verdict); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var c *net.TCPConn
	var err error
	address := "of the policy"
	if verdict.Via != nil {
		c, err = v.dialVia(limited, to, verdict)
	} else {
		address = v.s.cfg.Upstream.Address()
		c, err = v.s.cfg.Upstream.Dial(limited, upstream.Target{Addr: to})
	}
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return nil, &upstream.Error{
			Why: upstream.Late, Proxy: address, Text: fmt.Sprintf("did not reach %s within %s", to, dialTimeout),
		}
	}
	return nil, err
}

// dialVia connects to an address through the policy's own proxy.
func (v *vm) dialVia(ctx context.Context, to netip.AddrPort, verdict Verdict) (*net.TCPConn, error) {
	via := verdict.Via
	failed := func(why upstream.Why, text string) error {
		return &upstream.Error{Why: why, Proxy: via.URL.Address(), Text: text}
	}
	if via.Missing != "" {
		return nil, failed(upstream.Unknown, "has no password: "+via.Missing)
	}
	proxy, addrs, err := v.judge.Proxy(ctx, via)
	if err != nil {
		return nil, failed(upstream.Down, "may not be reached: "+err.Error())
	}
	for _, at := range addrs[:min(len(addrs), attempts)] {
		var c *net.TCPConn
		if c, err = v.dialProxy(ctx, at); err == nil {
			return proxy.Through(ctx, c, upstream.Target{Addr: to, Name: verdict.Known})
		}
	}
	return nil, proxy.Unreachable(ctx, err)
}

// dialProxy connects to the address of a policy's own proxy.
func (v *vm) dialProxy(ctx context.Context, at netip.AddrPort) (*net.TCPConn, error) {
	if proxy := v.s.cfg.Upstream; proxy != nil {
		return proxy.Dial(ctx, upstream.Target{Addr: at})
	}
	d := net.Dialer{KeepAliveConfig: keepAlive}
	c, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// refuseUpstream refuses an allowed flow that a proxy cannot carry. It is not dialed directly,
// because the author of the proxy wants all flows to go through it.
func refuseUpstream(f *flow, what, but string) {
	f.refuse(netwire.Prohibited, control.Refused,
		fmt.Sprintf("%s cannot pass the upstream proxy, which takes TCP only%s", what, but))
}

// textOfUpstream returns a proxy's failure for the guest, without the proxy's name and messages.
func textOfUpstream(why upstream.Why) string {
	switch why {
	case upstream.Forbidden:
		return "forbidden by the upstream proxy"
	case upstream.Refused:
		return "connection refused, says the upstream proxy"
	case upstream.HostUnreach, upstream.Expired:
		return "host unreachable, says the upstream proxy"
	case upstream.Late:
		return "timed out at the upstream proxy"
	}
	return "no way through the upstream proxy"
}

// reasonOfUpstream returns how a proxy's failure looks to the guest. Without the proxy, the guest
// has no route.
func reasonOfUpstream(why upstream.Why, six bool) netwire.Reason {
	switch why {
	case upstream.Forbidden:
		return netwire.Prohibited
	case upstream.Refused, upstream.Failed:
		return netwire.Reset
	case upstream.HostUnreach, upstream.Expired:
		return netwire.HostUnreachable
	case upstream.Late:
		return netwire.TimedOut
	}
	if six { // programs should fall back immediately, as on a host without IPv6
		return netwire.Reset
	}
	return netwire.NetUnreachable
}
