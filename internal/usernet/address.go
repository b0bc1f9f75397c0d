package usernet

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// Addresses of the wire. All clones have the same: they are in the snapshot.
var (
	GuestIPv4   = netip.AddrFrom4([4]byte{192, 0, 0, 2}) // RFC 7335
	GatewayIPv4 = netip.AddrFrom4([4]byte{192, 0, 0, 1})
	GuestIPv6   = netip.MustParseAddr("fd66:6f72:6b64::2")
	GatewayIPv6 = netip.MustParseAddr("fd66:6f72:6b64::1")
	// GatewayLinkLocal is what the guest's default route names.
	GatewayLinkLocal = netip.MustParseAddr("fe80::1")
)

// Lengths of the wire's networks, in bits.
const (
	prefixIPv4 = 29
	prefixIPv6 = 64
)

// MAC is an Ethernet address.
type MAC [6]byte

// GatewayMAC is the gateway's address, the same for every guest.
var GatewayMAC = MAC{0x02, 0x66, 0x6f, 0x72, 0x6b, 0x01}

var broadcastMAC = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// isGroup tells of broadcast and multicast.
func (m MAC) isGroup() bool { return m[0]&1 != 0 }

// subnetBroadcast is the last address of the IPv4 network.
var subnetBroadcast = netip.AddrFrom4([4]byte{192, 0, 0, 7})

func isGateway(a netip.Addr) bool {
	return a == GatewayIPv4 || a == GatewayLinkLocal || a == GatewayIPv6
}

// mayBeGuests reports whether the guest may send from a. Which link-local
// address it has follows from its MAC, and that may change.
func mayBeGuests(a netip.Addr) bool {
	return a == GuestIPv4 || a == GuestIPv6 || a.Is6() && a.IsLinkLocalUnicast() && a != GatewayLinkLocal
}

// isGroupAddress tells of destinations that are no single host.
func isGroupAddress(a netip.Addr) bool {
	return a.IsMulticast() || a == subnetBroadcast || a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func fromStack(a tcpip.Address) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return addr
}

func toStack(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

// networkOf is a's protocol, as the stack numbers it.
func networkOf(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return header.IPv4ProtocolNumber
	}
	return header.IPv6ProtocolNumber
}
