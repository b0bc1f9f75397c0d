package usernet

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// packet holds the parsed fields of an IP packet. All of them were checked against the frame's
// length.
type packet struct {
	src, dst netip.Addr
	bytes    []byte // the packet without the frame's padding
	segment
}

// parseIPv4 parses the packet after a frame's Ethernet header.
func parseIPv4(b []byte) (p packet, err error) {
	if len(b) < header.IPv4MinimumSize {
		return p, errShort
	}
	h := header.IPv4(b)
	hlen, total := int(h.HeaderLength()), int(h.TotalLength())
	if b[0]>>4 != header.IPv4Version || hlen < header.IPv4MinimumSize || total < hlen {
		return p, errMalform
	}
	if len(b) < total {
		return p, errShort
	}
	if !h.IsChecksumValid() {
		return p, errChecksum
	}
	p.bytes = b[:total]
	p.src, p.dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	p.segment = segment{
		protocol: Protocol(h.Protocol()), offset: header.EthernetMinimumSize + hlen, bytes: b[hlen:total],
		fragment: h.More() || h.FragmentOffset() != 0,
	}
	p.pseudo = header.PseudoHeaderChecksum(h.TransportProtocol(), h.SourceAddress(), h.DestinationAddress(),
		uint16(total-hlen))
	return p, nil
}

// protocolICMPv6 and protocolFragment are next headers of IPv6.
const (
	protocolICMPv6   Protocol = 58
	protocolFragment Protocol = 44
)

// parseIPv6 parses the packet after a frame's Ethernet header. A fragment's protocol is the one of
// its whole packet.
func parseIPv6(b []byte) (p packet, err error) {
	if len(b) < header.IPv6MinimumSize {
		return p, errShort
	}
	h := header.IPv6(b)
	total := header.IPv6MinimumSize + int(h.PayloadLength())
	if b[0]>>4 != header.IPv6Version {
		return p, errMalform
	}
	if len(b) < total {
		return p, errShort
	}
	p.bytes = b[:total]
	p.src, p.dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	p.segment = segment{
		protocol: Protocol(h.NextHeader()), offset: header.EthernetMinimumSize + header.IPv6MinimumSize,
		bytes: b[header.IPv6MinimumSize:total], ipv6: true,
	}
	if p.protocol == protocolFragment {
		if len(p.segment.bytes) < header.IPv6FragmentExtHdrLength {
			return p, errShort
		}
		p.protocol, p.fragment = Protocol(p.segment.bytes[0]), true
	}
	p.pseudo = header.PseudoHeaderChecksum(h.TransportProtocol(), h.SourceAddress(), h.DestinationAddress(),
		h.PayloadLength())
	return p, nil
}

// isEchoRequest reports whether p is a whole ICMP echo request.
func (p packet) isEchoRequest() bool {
	if p.fragment || len(p.segment.bytes) < header.ICMPv4MinimumSize {
		return false
	}
	return p.protocol == Echo && p.src.Is4() && p.segment.bytes[0] == byte(header.ICMPv4Echo) ||
		p.protocol == protocolICMPv6 && p.src.Is6() && p.segment.bytes[0] == byte(header.ICMPv6EchoRequest)
}

// echoFlow returns the flow of an echo request.
func (p packet) echoFlow() Flow {
	id := binary.BigEndian.Uint16(p.segment.bytes[4:])
	return Flow{Protocol: Echo, Guest: netip.AddrPortFrom(p.src, id), Far: netip.AddrPortFrom(p.dst, 0)}
}

// isForStack reports whether to pass the packet to the stack. Packets with IPv6 extension headers,
// except fragments, are excluded: they do not occur in practice, and the stack would answer echo
// requests behind them for any destination.
func (p packet) isForStack() bool {
	switch p.protocol {
	case TCP, UDP:
		return true
	case Echo:
		return p.src.Is4()
	case protocolICMPv6:
		return p.src.Is6() && (!p.fragment || isGateway(p.dst))
	}
	return false
}
