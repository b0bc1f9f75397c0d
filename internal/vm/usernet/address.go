package usernet

import (
	"net/netip"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// The guest's own addresses.
var (
	guest4 = guestnet.Guest4.Addr()
	guest6 = guestnet.Guest6.Addr()
)

// MAC is an Ethernet address.
type MAC [6]byte

var (
	gatewayMAC   = MAC(guestnet.GatewayMAC())
	broadcastMAC = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// isGroup reports whether m is a broadcast or multicast address.
func (m MAC) isGroup() bool { return m[0]&1 != 0 }

func isGateway(a netip.Addr) bool {
	return a == guestnet.Gateway4 || a == guestnet.Gateway6 || a == guestnet.GatewayUniqueLocal
}

// mayBeGuests reports whether the guest may send from a. Its link-local address depends on its MAC,
// which may change.
func mayBeGuests(a netip.Addr) bool {
	return a == guest4 || a == guest6 || a.Is6() && a.IsLinkLocalUnicast() && a != guestnet.Gateway6
}

// isGroupAddress reports whether a is a broadcast or multicast address.
func isGroupAddress(a netip.Addr) bool {
	return a.IsMulticast() || a == guestnet.Broadcast4 || a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func fromStack(a tcpip.Address) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return addr
}

func toStack(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

// networkOf returns a's protocol number in the stack.
func networkOf(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return header.IPv4ProtocolNumber
	}
	return header.IPv6ProtocolNumber
}
