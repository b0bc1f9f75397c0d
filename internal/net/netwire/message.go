package netwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Version is the first byte of each message.
const Version = 1

// Size is the size of each message in bytes.
const Size = 64

// Kind is the kind of a message.
type Kind uint8

// Kinds of messages.
const (
	Open    Kind = iota + 1 // VMM to forkd-net: the guest requests Flow
	Opened                  // forkd-net to VMM: the flow is open; comes with a descriptor
	Refused                 // forkd-net to VMM: denied or failed; Reason is how it looks to the guest
	Cancel                  // VMM to forkd-net: the guest no longer waits
	// Finished and Broken are messages to the VMM about a TCP flow that forkd-net relays: its
	// stream ended with the far end's last byte, or with a reset. A pair of unix sockets cannot
	// distinguish the two, nor either from the death of forkd-net. So an end counts only with one
	// of these messages.
	Finished
	Broken
	// Link is a message to the VMM of a member of a private network. It comes with the member's
	// link, a socket for frames with their headers, and replaces an earlier one. VMMs from before
	// private networks take it as a broken wire: their guests have no network then.
	Link
)

// hasFile reports whether messages of a kind come with a descriptor.
func (k Kind) hasFile() bool { return k == Opened || k == Link }

// Protocol is the protocol of a flow. The numbers are usernet's.
type Protocol uint8

// Protocols of flows.
const (
	Echo Protocol = 1
	TCP  Protocol = 6
	UDP  Protocol = 17
)

func (p Protocol) String() string {
	switch p {
	case Echo:
		return "echo"
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// Reason is how a refusal looks to the guest. The numbers are usernet's.
type Reason uint8

// Reasons of a refusal.
const (
	Reset           Reason = iota + 1 // TCP: RST; UDP: port unreachable
	Prohibited                        // TCP: RST; others: administratively prohibited
	HostUnreachable                   // ICMP host unreachable
	NetUnreachable                    // ICMP network unreachable
	TimedOut                          // no answer, as from a host that drops packets
)

func (r Reason) String() string {
	switch r {
	case Reset:
		return "reset"
	case Prohibited:
		return "prohibited"
	case HostUnreachable:
		return "host unreachable"
	case NetUnreachable:
		return "network unreachable"
	case TimedOut:
		return "timed out"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Flow is a connection requested by a guest. Both addresses have the same family and no zones.
type Flow struct {
	Protocol   Protocol       // TCP, UDP or Echo
	Guest, Far netip.AddrPort // source and destination in the guest's packets
}

// Message is one message. Fields that its kind does not use are zero.
type Message struct {
	Kind Kind // defines the fields in use
	// ID identifies the flow on this wire. The VMM chooses it.
	ID     uint32
	Flow   Flow   // Open
	Reason Reason // Refused
}

// ErrMessage is the error for an invalid message of this version.
var ErrMessage = errors.New("bad netwire message")

// Offsets of the fields of a message.
const (
	atVersion  = 0
	atKind     = 1
	atProtocol = 2
	atReason   = 3
	atID       = 4
	atGuest    = 8
	atFar      = 24
	atGuestEnd = 40 // port
	atFarEnd   = 42 // port
	atFamily   = 44 // 4 or 6; an IPv4 address is the first four bytes of its field
)

// Encode returns the message's bytes. It returns an error for a message that Decode would refuse.
func (m Message) Encode() (b [Size]byte, err error) {
	b[atVersion], b[atKind] = Version, byte(m.Kind)
	b[atProtocol], b[atReason] = byte(m.Flow.Protocol), byte(m.Reason)
	binary.LittleEndian.PutUint32(b[atID:], m.ID)
	if m.Kind == Open {
		guest, far := m.Flow.Guest.Addr().Unmap(), m.Flow.Far.Addr().Unmap()
		if !guest.IsValid() || guest.BitLen() != far.BitLen() {
			return b, fmt.Errorf("%w: flow from %s to %s", ErrMessage, guest, far)
		}
		b[atFamily] = 4
		if guest.Is6() {
			b[atFamily] = 6
		}
		copy(b[atGuest:atFar], guest.AsSlice())
		copy(b[atFar:atGuestEnd], far.AsSlice())
		binary.LittleEndian.PutUint16(b[atGuestEnd:], m.Flow.Guest.Port())
		binary.LittleEndian.PutUint16(b[atFarEnd:], m.Flow.Far.Port())
	}
	_, err = Decode(b[:])
	return b, err
}

// Decode reads a message. It refuses bytes that Encode would not produce, so each message has
// exactly one encoding.
func Decode(b []byte) (m Message, err error) {
	if len(b) != Size {
		return m, fmt.Errorf("%w: %d bytes, want %d", ErrMessage, len(b), Size)
	}
	if b[atVersion] != Version {
		return m, fmt.Errorf("%w: version %d, want %d", ErrMessage, b[atVersion], Version)
	}
	m.Kind, m.ID, m.Reason = Kind(b[atKind]), binary.LittleEndian.Uint32(b[atID:]), Reason(b[atReason])
	body := b[atGuest:]
	switch m.Kind {
	case Open:
		if m.Flow, err = decodeFlow(b); err != nil {
			return Message{}, err
		}
		body = b[atFamily+1:]
	case Opened, Refused, Cancel, Finished, Broken, Link:
		if b[atProtocol] != 0 {
			return Message{}, fmt.Errorf("%w: kind %d with a protocol", ErrMessage, m.Kind)
		}
	default:
		return Message{}, fmt.Errorf("%w: kind %d", ErrMessage, m.Kind)
	}
	if known := m.Reason >= Reset && m.Reason <= TimedOut; known != (m.Kind == Refused) || !known && m.Reason != 0 {
		return Message{}, fmt.Errorf("%w: kind %d with reason %d", ErrMessage, m.Kind, m.Reason)
	}
	if !zero(body) {
		return Message{}, fmt.Errorf("%w: kind %d with bytes that have no meaning", ErrMessage, m.Kind)
	}
	return m, nil
}

func decodeFlow(b []byte) (f Flow, err error) {
	f.Protocol = Protocol(b[atProtocol])
	if f.Protocol != TCP && f.Protocol != UDP && f.Protocol != Echo {
		return f, fmt.Errorf("%w: protocol %d", ErrMessage, f.Protocol)
	}
	guest, err := decodeAddr(b[atGuest:atFar], b[atFamily])
	if err != nil {
		return f, err
	}
	far, err := decodeAddr(b[atFar:atGuestEnd], b[atFamily])
	if err != nil {
		return f, err
	}
	f.Guest = netip.AddrPortFrom(guest, binary.LittleEndian.Uint16(b[atGuestEnd:]))
	f.Far = netip.AddrPortFrom(far, binary.LittleEndian.Uint16(b[atFarEnd:]))
	if f.Protocol == Echo && f.Far.Port() != 0 {
		return f, fmt.Errorf("%w: echo to port %d", ErrMessage, f.Far.Port())
	}
	return f, nil
}

// decodeAddr reads an address field. It refuses an IPv4 address in IPv6 form, because that would be
// a second encoding.
func decodeAddr(field []byte, family byte) (netip.Addr, error) {
	switch family {
	case 4:
		if !zero(field[4:]) {
			return netip.Addr{}, fmt.Errorf("%w: IPv4 address with bytes behind it", ErrMessage)
		}
		return netip.AddrFrom4([4]byte(field[:4])), nil
	case 6:
		if a := netip.AddrFrom16([16]byte(field)); !a.Is4In6() {
			return a, nil
		}
		return netip.Addr{}, fmt.Errorf("%w: mapped IPv4 address", ErrMessage)
	}
	return netip.Addr{}, fmt.Errorf("%w: address family %d", ErrMessage, family)
}

func zero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
