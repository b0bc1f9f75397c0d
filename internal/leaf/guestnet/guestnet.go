// Package guestnet is the plan of a guest's network: its addresses and those of its gateway.
// It is the one place for them, for the agent, the engine behind the device, forkd-net and
// the daemon. It does nothing and keeps nothing. The trap: what is here is in the memory of
// every snapshot, so a change of an address cuts the guests of older snapshots off.
package guestnet

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
)

// Interface is the guest's name of its network device. MTU is in bytes.
const (
	Interface = "eth0"
	MTU       = 1500
)

// The guest's own addresses. All guests have the same: each is alone with its
// gateway on its wire, so that nothing is to be changed after a fork.
var (
	Guest4 = netip.MustParsePrefix("192.0.0.2/29") // RFC 7335
	Guest6 = netip.MustParsePrefix("fd66:6f72:6b64::2/64")
	// GuestLinkLocal is static: one that is derived from the hardware address
	// would change, and be announced, in each child.
	GuestLinkLocal = netip.MustParsePrefix("fe80::2/64")
)

// The gateway's addresses, which the guest's default routes name. It is the guest's name
// server as well.
var (
	Gateway4 = netip.MustParseAddr("192.0.0.1")
	Gateway6 = netip.MustParseAddr("fe80::1")
	// GatewayUniqueLocal answers for itself only: no route names it.
	GatewayUniqueLocal = netip.MustParseAddr("fd66:6f72:6b64::1")
)

// Broadcast4 is everybody on the wire. Block6 is what forkd takes of IPv6's unique
// local addresses.
var (
	Broadcast4 = netip.MustParseAddr("192.0.0.7")
	Block6     = netip.MustParsePrefix("fd66:6f72:6b64::/48")
)

// reserved begins the hardware addresses that are no sandbox's: "fork" behind a byte
// that says unicast and locally administered.
var reserved = net.HardwareAddr{0x02, 'f', 'o', 'r', 'k'}

// GatewayMAC is the hardware address of every guest's gateway.
func GatewayMAC() net.HardwareAddr { return append(slices.Clone(reserved), 0x01) }

// ParentMAC is that of a guest which has no identity yet.
func ParentMAC() net.HardwareAddr { return append(slices.Clone(reserved), 0x02) }

// Reserved says that mac is one of those, or may become one.
func Reserved(mac net.HardwareAddr) bool { return bytes.HasPrefix(mac, reserved) }
