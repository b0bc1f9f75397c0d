// Package guestnet defines the addresses in a guest's network: the guest's and its gateway's. It is the single
// place for them, used by the agent, the engine behind the device, forkd-net and the daemon. It has only
// constants and simple functions. Beware: the addresses are in the memory of every snapshot, so changing one
// disconnects the guests of older snapshots.
package guestnet

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
)

// Interface is the name of the network device in the guest. MTU is in bytes.
const (
	Interface = "eth0"
	MTU       = 1500
)

// The guest's own addresses. They are the same in all guests: each guest is alone with its gateway on its wire,
// so a fork needs to change no addresses.
var (
	Guest4 = netip.MustParsePrefix("192.0.0.2/29") // RFC 7335
	Guest6 = netip.MustParsePrefix("fd66:6f72:6b64::2/64")
	// GuestLinkLocal is static: an address derived from the hardware address would change, and be announced, in
	// each child.
	GuestLinkLocal = netip.MustParsePrefix("fe80::2/64")
)

// The gateway's addresses, used in the guest's default routes. The gateway is also the guest's name server.
var (
	Gateway4 = netip.MustParseAddr("192.0.0.1")
	Gateway6 = netip.MustParseAddr("fe80::1")
	// GatewayUniqueLocal answers only for itself. No route uses it.
	GatewayUniqueLocal = netip.MustParseAddr("fd66:6f72:6b64::1")
)

// Broadcast4 is the broadcast address of the wire. Block6 is forkd's block of IPv6 unique local addresses.
var (
	Broadcast4 = netip.MustParseAddr("192.0.0.7")
	Block6     = netip.MustParsePrefix("fd66:6f72:6b64::/48")
)

// Members4 has the addresses of the members of a private network, in the eyes of the others. It is outside of the
// guest's own network, so guests send packets to it by the gateway.
var Members4 = netip.MustParsePrefix("192.0.0.64/26")

// reserved begins the hardware addresses not used for sandboxes: "fork" after a byte with the bits for unicast
// and locally administered.
var reserved = net.HardwareAddr{0x02, 'f', 'o', 'r', 'k'}

// GatewayMAC returns the hardware address of every guest's gateway.
func GatewayMAC() net.HardwareAddr { return append(slices.Clone(reserved), 0x01) }

// ParentMAC returns the hardware address of a guest without an identity yet.
func ParentMAC() net.HardwareAddr { return append(slices.Clone(reserved), 0x02) }

// Reserved reports whether mac is one of these addresses, or may become one.
func Reserved(mac net.HardwareAddr) bool { return bytes.HasPrefix(mac, reserved) }
