package usernet

import (
	"encoding/binary"
	"net/netip"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// quoted is the quoted length of the transport's header in an ICMP error, in bytes.
const quoted = 8

// quoteTCP returns an ICMP error's quote of a SYN.
func quoteTCP(f Flow, seq uint32) []byte {
	ports := uint64(f.Guest.Port())<<48 | uint64(f.Far.Port())<<32
	return quoteDatagram(f, ports|uint64(seq))
}

// quoteDatagram rebuilds the head of a packet of f, with the first 8 bytes of its transport's
// header.
func quoteDatagram(f Flow, first uint64) []byte {
	if f.Guest.Addr().Is4() {
		b := make([]byte, header.IPv4MinimumSize+quoted)
		header.IPv4(b).Encode(&header.IPv4Fields{
			TotalLength: uint16(len(b)), TTL: ttl, Protocol: uint8(f.Protocol),
			SrcAddr: toStack(f.Guest.Addr()), DstAddr: toStack(f.Far.Addr()),
		})
		header.IPv4(b).SetChecksum(^header.IPv4(b).CalculateChecksum())
		binary.BigEndian.PutUint64(b[header.IPv4MinimumSize:], first)
		return b
	}
	b := make([]byte, header.IPv6MinimumSize+quoted)
	protocol := tcpip.TransportProtocolNumber(f.Protocol)
	if f.Protocol == Echo {
		protocol = header.ICMPv6ProtocolNumber
	}
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: quoted, TransportProtocol: protocol, HopLimit: ttl,
		SrcAddr: toStack(f.Guest.Addr()), DstAddr: toStack(f.Far.Addr()),
	})
	binary.BigEndian.PutUint64(b[header.IPv6MinimumSize:], first)
	return b
}

// ttl is the time to live of packets to the guest, which is one hop away.
const ttl = 64

// unreachable informs the guest why its packet was not delivered.
func (e *Engine) unreachable(f Flow, r Reason, quote []byte) {
	from := f.Far.Addr() // a closed port is the far end's own answer
	v4 := from.Is4()
	if r != Reset {
		from = guestnet.Gateway4
		if !v4 {
			from = guestnet.GatewayUniqueLocal
		}
	}
	out, err := e.newSender(Flow{Protocol: Echo, Guest: f.Guest, Far: netip.AddrPortFrom(from, 0)})
	if err != nil {
		return
	}
	defer out.close()
	message := make([]byte, quoted, quoted+len(quote))
	message[0], message[1] = unreachableCode(v4, r)
	out.icmp(append(message, quote...))
}

// unreachableCode returns the type and code of a refusal (RFC 792, RFC 1812 §5.2.7.1, RFC 4443
// §3.1).
func unreachableCode(v4 bool, r Reason) (kind, code byte) {
	if v4 {
		codes := map[Reason]header.ICMPv4Code{
			Reset: header.ICMPv4PortUnreachable, Prohibited: header.ICMPv4AdminProhibited,
			HostUnreachable: header.ICMPv4HostUnreachable, NetUnreachable: header.ICMPv4NetUnreachable,
		}
		return byte(header.ICMPv4DstUnreachable), byte(codes[r])
	}
	codes := map[Reason]header.ICMPv6Code{
		Reset: header.ICMPv6PortUnreachable, Prohibited: header.ICMPv6Prohibited,
		HostUnreachable: header.ICMPv6AddressUnreachable, NetUnreachable: header.ICMPv6NetworkUnreachable,
	}
	return byte(header.ICMPv6DstUnreachable), byte(codes[r])
}

// sender sends the guest packets outside of the stack's connections.
type sender struct{ route *stack.Route }

// newSender returns a sender from f's far end to its guest's. Its owner closes it.
func (e *Engine) newSender(f Flow) (*sender, error) {
	e.mu.Lock()
	s, closed := e.stack, e.closed
	e.mu.Unlock()
	if s == nil || closed {
		return nil, errGone
	}
	r, err := s.FindRoute(nic, toStack(f.Far.Addr()), toStack(f.Guest.Addr()), networkOf(f.Guest.Addr()), false)
	if err != nil {
		return nil, errGone
	}
	return &sender{route: r}, nil
}

func (s *sender) close() { s.route.Release() }

// datagram sends a datagram of f's far end.
func (s *sender) datagram(f Flow, b []byte) {
	if f.Protocol == UDP {
		s.udp(f, b)
		return
	}
	want := byte(header.ICMPv4EchoReply)
	if s.route.NetProto() == header.IPv6ProtocolNumber {
		want = byte(header.ICMPv6EchoReply)
	}
	if len(b) < header.ICMPv4MinimumSize || b[0] != want {
		return
	}
	binary.BigEndian.PutUint16(b[4:], f.Guest.Port()) // the far half's socket may have had another
	s.icmp(b)
}

func (s *sender) udp(f Flow, b []byte) {
	if len(b) > header.UDPMaximumSize-header.UDPMinimumSize {
		return
	}
	pkt := s.packet(header.UDPMinimumSize, b)
	defer pkt.DecRef()
	h := header.UDP(pkt.TransportHeader().Push(header.UDPMinimumSize))
	size := uint16(pkt.Size())
	h.Encode(&header.UDPFields{SrcPort: f.Far.Port(), DstPort: f.Guest.Port(), Length: size})
	sum := s.route.PseudoHeaderChecksum(header.UDPProtocolNumber, size)
	if sum = ^h.CalculateChecksum(checksum.Checksum(b, sum)); sum == 0 {
		sum = 0xffff // RFC 768: zero would mean no checksum
	}
	h.SetChecksum(sum)
	s.write(pkt, header.UDPProtocolNumber)
}

// icmp sends a whole message, and fills in its checksum.
func (s *sender) icmp(b []byte) {
	protocol, sum := header.ICMPv4ProtocolNumber, uint16(0)
	if s.route.NetProto() == header.IPv6ProtocolNumber {
		protocol = header.ICMPv6ProtocolNumber
		sum = s.route.PseudoHeaderChecksum(protocol, uint16(len(b)))
	}
	binary.BigEndian.PutUint16(b[2:], 0)
	binary.BigEndian.PutUint16(b[2:], ^checksum.Checksum(b, sum))
	pkt := s.packet(header.ICMPv4MinimumSize, b[header.ICMPv4MinimumSize:])
	defer pkt.DecRef()
	copy(pkt.TransportHeader().Push(header.ICMPv4MinimumSize), b)
	s.write(pkt, protocol)
}

func (s *sender) packet(head int, payload []byte) *stack.PacketBuffer {
	return stack.NewPacketBuffer(stack.PacketBufferOptions{
		ReserveHeaderBytes: head + int(s.route.MaxHeaderLength()), Payload: buffer.MakeWithData(payload),
	})
}

// write sends a packet, in fragments if it is longer than the MTU.
func (s *sender) write(pkt *stack.PacketBuffer, protocol tcpip.TransportProtocolNumber) {
	pkt.TransportProtocolNumber = protocol
	s.route.WritePacket(stack.NetworkHeaderParams{Protocol: protocol, TTL: ttl}, pkt)
}
