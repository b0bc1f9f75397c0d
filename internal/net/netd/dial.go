package netd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/net/upstream"
)

// dialTimeout limits connecting. The guest continues to send SYNs meanwhile.
const dialTimeout = 10 * time.Second

// keepAlive detects far ends that have disappeared without notice.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Minute, Interval: 30 * time.Second, Count: 5}

// errFloor is the error if the address at the time of dialing is not allowed.
var errFloor = errors.New("address may not be dialed")

// dial connects to a judged address. It checks the address again just before the kernel gets it, so
// mistakes on the way open no other address.
func (v *vm) dial(
	ctx context.Context, p netwire.Protocol, to netip.AddrPort, q Question, verdict Verdict,
) (net.Conn, error) {
	if v.viaUpstream(verdict) {
		return v.dialUpstream(ctx, to, q, verdict)
	}
	network := map[netwire.Protocol]string{netwire.TCP: "tcp", netwire.UDP: "udp"}[p]
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	d.Control = func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || at != to {
			return fmt.Errorf("%w: %s is not %s", errFloor, address, to)
		}
		return v.lookAgain(p, at, q, verdict)
	}
	return d.DialContext(ctx, network, to.String())
}

// lookAgain judges the address just before the kernel gets it.
func (v *vm) lookAgain(p netwire.Protocol, at netip.AddrPort, q Question, verdict Verdict) error {
	if verdict.Dial.IsValid() && verdict.Dial == at {
		return nil // the operator's own address for the host
	}
	again := v.judge.Flow(Question{Protocol: p, Far: at, Name: q.Name})
	switch {
	case again.Outcome == Deny:
		return fmt.Errorf("%w: %s", errFloor, again.Text)
	case !again.Via.Same(verdict.Via):
		return fmt.Errorf("%w: the policy has another proxy now", errFloor)
	}
	return nil
}

// reasonOf returns how a failure to connect looks to the guest, and the audit's verdict for it. The
// guest sees the text as well, so it contains no address, host or proxy except the ones from the
// guest.
func reasonOf(err error, six bool) (reason netwire.Reason, verdict, text string) {
	var upstream *upstream.Error
	switch {
	case errors.Is(err, errFloor):
		return netwire.Prohibited, control.Denied, err.Error()
	case outOfDescriptors(err):
		return netwire.Reset, control.Limited, "forkd-net is out of descriptors"
	case errors.As(err, &upstream):
		return reasonOfUpstream(upstream.Why, six), control.Refused, textOfUpstream(upstream.Why)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return netwire.Reset, control.Refused, "connection refused"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EHOSTDOWN):
		return netwire.HostUnreachable, control.Refused, "host unreachable"
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EADDRNOTAVAIL):
		if six { // a host without IPv6: programs should fall back immediately
			return netwire.Reset, control.Refused, "no IPv6 route"
		}
		return netwire.NetUnreachable, control.Refused, "network unreachable"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT), isTimeout(err):
		return netwire.TimedOut, control.Refused, "timed out"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return netwire.Prohibited, control.Refused, "forbidden by the host's kernel"
	}
	return netwire.Reset, control.Refused, "the connection failed"
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func outOfDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ETOOMANYREFS)
}
