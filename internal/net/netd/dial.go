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
	"github.com/forkd/forkd/internal/net/socks5"
)

// dialTimeout is for connecting. A guest's own SYNs go on meanwhile.
const dialTimeout = 10 * time.Second

// keepAlive finds far ends that are gone without a word.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Minute, Interval: 30 * time.Second, Count: 5}

// errFloor: the address at the moment of dialing is one that may not be dialed.
var errFloor = errors.New("address may not be dialed")

// dial connects to an address that was judged. What the kernel is about to be
// given is looked at once more, so that no mistake on the way here opens anything.
func (v *vm) dial(
	ctx context.Context, p netwire.Protocol, to netip.AddrPort, q Question, verdict Verdict,
) (net.Conn, error) {
	if v.viaUpstream(verdict) {
		return v.dialUpstream(ctx, to, q)
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

// lookAgain has the address judged that the kernel is about to be given.
func (v *vm) lookAgain(p netwire.Protocol, at netip.AddrPort, q Question, verdict Verdict) error {
	if verdict.Dial.IsValid() && verdict.Dial == at {
		return nil // the operator's own address for the host
	}
	if again := v.judge.Flow(Question{Protocol: p, Far: at, Name: q.Name}); again.Outcome == Deny {
		return fmt.Errorf("%w: %s", errFloor, again.Text)
	}
	return nil
}

// reasonOf says how a failure to connect is to look to the guest, and by which
// word the audit has it. The text is for the guest as well: it names no address, host or proxy that
// the guest did not name.
func reasonOf(err error, six bool) (reason netwire.Reason, verdict, text string) {
	var upstream *socks5.Error
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
		if six { // a host without IPv6: programs are to fall back at once
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
