// Package usernet is the engine behind a guest's network device: its gateway, in user mode. It
// answers ARP, neighbour discovery and echo requests to itself, terminates the guest's TCP and UDP
// flows, and requests the other half of each from a Dialer. It opens no sockets itself, and knows
// neither policy nor names.
package usernet

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Protocol is a flow's protocol, by its IP number.
type Protocol uint8

// Supported protocols. Echo stands for ICMP and ICMPv6 echo requests: the ports of its flows are 0
// at the far end, and the identifier at the guest's.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	Echo Protocol = 1
)

// Flow is a connection requested by a guest.
type Flow struct {
	Protocol   Protocol       // TCP, UDP or Echo
	Guest, Far netip.AddrPort // source and destination in the guest's packets
}

// Reason selects how a refusal appears to the guest.
type Reason uint8

// Reasons of a refusal.
const (
	Reset           Reason = iota + 1 // TCP: RST; UDP: port unreachable
	Prohibited                        // TCP: RST; others: administratively prohibited
	HostUnreachable                   // ICMP host unreachable
	NetUnreachable                    // ICMP network unreachable
	TimedOut                          // no answer, as from a host that drops packets
)

// Refusal is a Dialer's error for a refused flow.
type Refusal struct {
	Reason Reason // how it appears to the guest
}

func (r *Refusal) Error() string { return fmt.Sprintf("flow refused (%d)", r.Reason) }

// Stream is the far half of a TCP flow. It may also implement WaitRead() error, as may Datagrams.
// WaitRead returns nil when Read will not block: an idle flow takes no buffer.
type Stream interface {
	io.ReadWriteCloser
	// CloseWrite ends the guest's direction.
	CloseWrite() error
	// SetDeadline ends pending reads and writes when t is past.
	SetDeadline(t time.Time) error
	// Abort closes the stream with a reset to the far end. It ends pending reads and writes, does
	// not wait, and may be called more than once.
	Abort()
}

// Datagrams is the far half of a flow of UDP or of echo requests. The datagrams of the latter are
// whole ICMP messages without IP header.
type Datagrams interface {
	// Read and Write carry one datagram each. Read fails with *Refusal when the
	// far end has refused one.
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// Dialer opens the far halves. An error other than a *Refusal counts as Reset.
type Dialer interface {
	DialTCP(ctx context.Context, f Flow) (Stream, error)
	DialDatagrams(ctx context.Context, f Flow) (Datagrams, error)
}
