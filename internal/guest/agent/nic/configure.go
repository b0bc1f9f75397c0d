package nic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/guestnet"
)

// queueLength is the size of the device's own ring, in packets.
const queueLength = 256

// Configure sets up the guest's device according to package guestnet. It returns false and does
// nothing if there is no device, as with an older VMM.
func Configure() (found bool, err error) {
	link, err := netlink.LinkByName(guestnet.Interface)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find %s: %w", guestnet.Interface, err)
	}
	setKnobs()
	for _, set := range []func(netlink.Link) error{raise, addAddresses, addGateways} {
		if err := set(link); err != nil {
			return true, fmt.Errorf("configure %s: %w", guestnet.Interface, err)
		}
	}
	return true, nil
}

// knobs are kernel settings in their required order: the device's settings work only before it is
// up. Missing ones are skipped.
var knobs = [][2]string{
	// The default, fq_codel, spreads a child's few packets over a thousand queues and so writes to
	// their memory. There is only one peer, and it is near.
	{"net/core/default_qdisc", "pfifo_fast"},
	// Users of one guest are no security boundary: all may ping and serve on any port.
	{"net/ipv4/ping_group_range", "0 2147483647"},
	{"net/ipv4/ip_unprivileged_port_start", "0"},
	// IPv6 sends no requests, so a new clone sends no packets.
	{"net/ipv6/conf/" + guestnet.Interface + "/accept_ra", "0"},
	{"net/ipv6/conf/" + guestnet.Interface + "/autoconf", "0"},
	{"net/ipv6/conf/" + guestnet.Interface + "/router_solicitations", "0"},
	{"net/ipv6/conf/" + guestnet.Interface + "/accept_dad", "0"},
	{"net/ipv6/conf/" + guestnet.Interface + "/dad_transmits", "0"},
	{"net/ipv6/conf/" + guestnet.Interface + "/use_tempaddr", "0"},
	// 1: do not derive an address from the hardware address, because each child changes it.
	{"net/ipv6/conf/" + guestnet.Interface + "/addr_gen_mode", "1"},
}

func setKnobs() {
	for _, k := range knobs {
		_ = os.WriteFile("/proc/sys/"+k[0], []byte(k[1]), 0)
	}
}

func raise(link netlink.Link) error {
	if link.Attrs().MTU != guestnet.MTU {
		if err := netlink.LinkSetMTU(link, guestnet.MTU); err != nil {
			return fmt.Errorf("set mtu: %w", err)
		}
	}
	if err := netlink.LinkSetTxQLen(link, queueLength); err != nil {
		return fmt.Errorf("set queue length: %w", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

func addAddresses(link netlink.Link) error {
	for _, p := range []netip.Prefix{guestnet.Guest4, guestnet.Guest6, guestnet.GuestLinkLocal} {
		addr := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // no other host is on this link
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return optional6(p.Addr(), fmt.Errorf("add address %s: %w", p, err))
		}
	}
	return nil
}

// addGateways makes the gateways permanent neighbours, so the guest never sends requests for them,
// and adds the routes.
func addGateways(link netlink.Link) error {
	for _, gw := range gateways() {
		index := link.Attrs().Index
		n := &netlink.Neigh{LinkIndex: index, State: unix.NUD_PERMANENT, IP: gw.AsSlice(),
			HardwareAddr: guestnet.GatewayMAC()}
		if err := netlink.NeighSet(n); err != nil {
			return optional6(gw, fmt.Errorf("add neighbour %s: %w", gw, err))
		}
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: index, Gw: gw.AsSlice()}); err != nil {
			return optional6(gw, fmt.Errorf("add route over %s: %w", gw, err))
		}
	}
	return nil
}

// gateways returns the gateways in order of use. After a failed IPv6 gateway, the rest may be
// skipped.
func gateways() []netip.Addr { return []netip.Addr{guestnet.Gateway4, guestnet.Gateway6} }

// optional6 ignores an error for an IPv6 address in a kernel without IPv6 (ipv6.disable=1).
func optional6(addr netip.Addr, err error) error {
	if addr.Is6() && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)) {
		return nil
	}
	return err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
