// Package usernet is the engine behind a guest's network device: its gateway, in
// user mode. It answers ARP, neighbour discovery and echo requests to itself,
// ends the guest's TCP and UDP flows, and asks a Dialer for the other half of
// each. It opens nothing itself, and knows neither policy nor names.
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

// Protocols that are carried. Echo stands for ICMP and ICMPv6 echo requests:
// ports of its flows are 0 at the far end, and the identifier at the guest's.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	Echo Protocol = 1
)

// Flow is a connection that a guest asks for.
type Flow struct {
	Protocol   Protocol
	Guest, Far netip.AddrPort
}

// Reason says how a refusal is to look to the guest.
type Reason uint8

// Reasons of a refusal.
const (
	Reset           Reason = iota + 1 // TCP: RST; UDP: port unreachable
	Prohibited                        // TCP: RST; the rest: administratively prohibited
	HostUnreachable                   // ICMP host unreachable
	NetUnreachable                    // ICMP network unreachable
	TimedOut                          // no answer, as from a host that drops
)

// Refusal is the error of a Dialer for a flow that does not come about.
type Refusal struct{ Reason Reason }

func (r *Refusal) Error() string { return fmt.Sprintf("flow refused (%d)", r.Reason) }

// Stream is the far half of a TCP flow. It may also have WaitRead() error, as
// Datagrams may: it returns nil when Read will not wait, so that no buffer is
// taken for a flow that is idle.
type Stream interface {
	io.ReadWriteCloser
	// CloseWrite says that the guest sends no more.
	CloseWrite() error
	// SetDeadline ends reads and writes under way when t is past.
	SetDeadline(t time.Time) error
	// Abort closes so that the far end gets a reset. It ends reads and writes
	// under way, waits for nothing, and may come more than once.
	Abort()
}

// Datagrams is the far half of a UDP flow, or of one of echo requests, whose
// datagrams are whole ICMP messages without IP header.
type Datagrams interface {
	// Read and Write carry one datagram each. Read fails with *Refusal when the
	// far end has refused one.
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// Dialer opens the far halves. An error that is no *Refusal counts as Reset.
type Dialer interface {
	DialTCP(ctx context.Context, f Flow) (Stream, error)
	DialDatagrams(ctx context.Context, f Flow) (Datagrams, error)
}
