package netd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/net/socks5"
)

// viaUpstream reports whether an allowed flow goes through the operator's proxy. A flow to the host
// itself does not: it uses the operator's own address, which the proxy may not know.
func (v *vm) viaUpstream(verdict Verdict) bool {
	return v.s.cfg.Upstream != nil && !verdict.Dial.IsValid()
}

// dialUpstream connects to a judged address through the proxy. It checks the address again, as dial
// does. The proxy's own address is not judged, because guests do not choose it and cannot reach it
// this way.
func (v *vm) dialUpstream(ctx context.Context, to netip.AddrPort, q Question) (net.Conn, error) {
	again := v.judge.Flow(Question{Protocol: netwire.TCP, Far: to, Name: q.Name})
	if again.Outcome == Deny {
		return nil, fmt.Errorf("%w: %s", errFloor, again.Text)
	}
	limited, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	proxy := v.s.cfg.Upstream
	c, err := proxy.Dial(limited, to)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return nil, &socks5.Error{
			Why: socks5.Late, Proxy: proxy.Address(), Text: fmt.Sprintf("did not reach %s within %s", to, dialTimeout),
		}
	}
	return nil, err
}

// refuseUpstream refuses an allowed flow that a proxy cannot carry. It is not dialed directly,
// because an operator with a proxy wants all flows to go through it.
func refuseUpstream(f *flow, what, but string) {
	f.refuse(netwire.Prohibited, control.Refused,
		fmt.Sprintf("%s cannot pass the upstream proxy, which takes TCP only%s", what, but))
}

// textOfUpstream returns a proxy's failure for the guest, without the proxy's name and messages.
func textOfUpstream(why socks5.Why) string {
	switch why {
	case socks5.Forbidden:
		return "forbidden by the upstream proxy"
	case socks5.Refused:
		return "connection refused, says the upstream proxy"
	case socks5.HostUnreach, socks5.Expired:
		return "host unreachable, says the upstream proxy"
	case socks5.Late:
		return "timed out at the upstream proxy"
	}
	return "no way through the upstream proxy"
}

// reasonOfUpstream returns how a proxy's failure looks to the guest. Without the proxy, the guest
// has no route.
func reasonOfUpstream(why socks5.Why, six bool) netwire.Reason {
	switch why {
	case socks5.Forbidden:
		return netwire.Prohibited
	case socks5.Refused, socks5.Failed:
		return netwire.Reset
	case socks5.HostUnreach, socks5.Expired:
		return netwire.HostUnreachable
	case socks5.Late:
		return netwire.TimedOut
	}
	if six { // programs should fall back immediately, as on a host without IPv6
		return netwire.Reset
	}
	return netwire.NetUnreachable
}
