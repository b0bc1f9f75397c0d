package usernet

import (
	"encoding/binary"
	"net/netip"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// ARP and neighbour discovery are answered outside of the stack. The stack takes every address as
// its own and would answer for all of them, including the guest's.

// arpReply returns the answer to a request for the gateway, or nil.
func arpReply(b []byte) []byte {
	if len(b) < header.ARPSize {
		return nil
	}
	h := header.ARP(b[:header.ARPSize])
	target := netip.AddrFrom4([4]byte(h.ProtocolAddressTarget()))
	if !h.IsValid() || h.Op() != header.ARPRequest || target != guestnet.Gateway4 {
		return nil
	}
	frame := make([]byte, header.EthernetMinimumSize+header.ARPSize)
	encodeEthernet(frame, MAC(h.HardwareAddressSender()), uint16(header.ARPProtocolNumber))
	reply := header.ARP(frame[header.EthernetMinimumSize:])
	reply.SetIPv4OverEthernet()
	reply.SetOp(header.ARPReply)
	copy(reply.HardwareAddressSender(), gatewayMAC[:])
	copy(reply.ProtocolAddressSender(), h.ProtocolAddressTarget())
	copy(reply.HardwareAddressTarget(), h.HardwareAddressSender())
	copy(reply.ProtocolAddressTarget(), h.ProtocolAddressSender())
	return frame
}

// Sizes in neighbour messages (RFC 4861 §4.3, §4.4, §4.6.1), and the hop limit of messages never
// forwarded.
const (
	solicitationSize  = 24
	advertisementSize = 32 // with the target's link-layer address
	hopsUnforwarded   = 255
)

// Flags of an advertisement: from a router, solicited, override.
const (
	fromRouter = 0x80
	solicited  = 0x40
	override   = 0x20
)

var allNodes = netip.MustParseAddr("ff02::1")

// isNeighbor reports whether p is a message of neighbour discovery. The stack never gets such
// messages.
func (p packet) isNeighbor() bool {
	if p.protocol != protocolICMPv6 || len(p.segment.bytes) == 0 {
		return false
	}
	t := header.ICMPv6Type(p.segment.bytes[0])
	return t >= header.ICMPv6RouterSolicit && t <= header.ICMPv6RedirectMsg
}

// neighborReply returns the answer to a solicitation of the gateway, or nil. A solicitation from
// the unspecified address checks whether the gateway's address is taken (RFC 4862 §5.4.3).
func neighborReply(p packet, from MAC) []byte {
	m := p.segment.bytes
	if p.fragment || len(m) < solicitationSize || header.ICMPv6Type(m[0]) != header.ICMPv6NeighborSolicit || m[1] != 0 ||
		header.IPv6(p.bytes).HopLimit() != hopsUnforwarded || checksum.Checksum(m, p.pseudo) != 0xffff {
		return nil
	}
	target := netip.AddrFrom16([16]byte(m[8:]))
	if !target.Is6() || !isGateway(target) {
		return nil
	}
	to, mac, flags := p.src, from, byte(fromRouter|solicited|override)
	if to.IsUnspecified() {
		to, mac, flags = allNodes, MAC{0x33, 0x33, 0, 0, 0, 1}, fromRouter|override
	} else if !mayBeGuests(to) {
		return nil
	}
	return advertisement(target, to, mac, flags)
}

func advertisement(target, to netip.Addr, mac MAC, flags byte) []byte {
	frame := make([]byte, header.EthernetMinimumSize+header.IPv6MinimumSize+advertisementSize)
	encodeEthernet(frame, mac, uint16(header.IPv6ProtocolNumber))
	ip := header.IPv6(frame[header.EthernetMinimumSize:])
	ip.Encode(&header.IPv6Fields{
		PayloadLength: advertisementSize, TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit: hopsUnforwarded, SrcAddr: toStack(target), DstAddr: toStack(to),
	})
	m := frame[header.EthernetMinimumSize+header.IPv6MinimumSize:]
	m[0], m[4] = byte(header.ICMPv6NeighborAdvert), flags
	copy(m[8:], target.AsSlice())
	m[24], m[25] = 2, 1 // option: target link-layer address, one unit of 8 bytes
	copy(m[26:], gatewayMAC[:])
	sum := header.PseudoHeaderChecksum(header.ICMPv6ProtocolNumber, ip.SourceAddress(), ip.DestinationAddress(),
		advertisementSize)
	binary.BigEndian.PutUint16(m[2:], ^checksum.Checksum(m, sum))
	return frame
}
