package identity

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
)

// Network is the clone's network configuration. The zero value changes no settings.
type Network struct {
	// MAC is the new hardware address of the guest's device (Applier.Link). The link stays up
	// meanwhile: a link that is set down loses its routes and neighbours.
	MAC net.HardwareAddr
	// Interface is the link for the fields below. If empty, the first link except loopback.
	Interface string
	Addresses []string // CIDR
	Gateway   string   // address of the default route; if empty, unchanged
	DNS       []string // addresses for /etc/resolv.conf; if empty, unchanged
	MTU       uint32   // in bytes; 0 keeps the link's
}

// Link is the guest's network device.
type Link interface {
	// SetMAC changes the hardware address without interrupting the link.
	SetMAC(mac net.HardwareAddr) error
}

// setNetwork sets the clone's hardware address, and then the other fields of n. A clone with the
// network of package guestnet needs only the hardware address.
func (a *Applier) setNetwork(n Network) (bool, error) {
	done, err := a.setMAC(n.MAC)
	if err != nil {
		return false, err
	}
	if err := a.setDNS(n.DNS); err != nil {
		return false, err
	}
	if len(n.Addresses) == 0 && n.Gateway == "" && n.MTU == 0 {
		return done || len(n.DNS) > 0, nil
	}
	link, err := findLink(n.Interface)
	if err != nil {
		return false, err
	}
	if err := configure(link, n); err != nil {
		return false, fmt.Errorf("configure %s: %w", link.Attrs().Name, err)
	}
	return true, nil
}

// setMAC does nothing in a guest without a device.
func (a *Applier) setMAC(mac net.HardwareAddr) (bool, error) {
	if len(mac) == 0 || a.Link == nil {
		return false, nil
	}
	if err := a.Link.SetMAC(mac); err != nil {
		return false, fmt.Errorf("set hardware address: %w", err)
	}
	return true, nil
}

func (a *Applier) setDNS(servers []string) error {
	if len(servers) == 0 {
		return nil
	}
	var b strings.Builder
	for _, s := range servers {
		if net.ParseIP(s) == nil {
			return fmt.Errorf("name server %q is not an address", s)
		}
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	return rewrite(a.path("/etc/resolv.conf"), []byte(b.String()))
}

func findLink(name string) (netlink.Link, error) {
	if name != "" {
		return netlink.LinkByName(name)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if l.Type() == "device" && l.Attrs().Flags&net.FlagLoopback == 0 {
			return l, nil
		}
	}
	return nil, errors.New("there is no network interface")
}

func configure(link netlink.Link, n Network) error {
	if err := setLink(link, n); err != nil {
		return err
	}
	if err := setAddresses(link, n.Addresses); err != nil {
		return err
	}
	if n.Gateway == "" {
		return nil
	}
	gw := net.ParseIP(n.Gateway)
	if gw == nil {
		return fmt.Errorf("gateway %q is not an address", n.Gateway)
	}
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw}); err != nil {
		return fmt.Errorf("set default route: %w", err)
	}
	return nil
}

func setLink(link netlink.Link, n Network) error {
	if n.MTU != 0 {
		if err := netlink.LinkSetMTU(link, int(n.MTU)); err != nil {
			return fmt.Errorf("set mtu: %w", err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link up: %w", err)
	}
	return nil
}

// setAddresses removes the parent's addresses and adds the clone's.
func setAddresses(link netlink.Link, cidrs []string) error {
	if len(cidrs) == 0 {
		return nil
	}
	want := map[string]*netlink.Addr{}
	for _, c := range cidrs {
		addr, err := netlink.ParseAddr(c)
		if err != nil {
			return fmt.Errorf("parse address %q: %w", c, err)
		}
		want[addr.IPNet.String()] = addr
	}
	have, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, old := range have {
		if want[old.IPNet.String()] == nil && !old.IP.IsLinkLocalUnicast() {
			if err := netlink.AddrDel(link, &old); err != nil {
				return fmt.Errorf("remove address %s: %w", old.IPNet, err)
			}
		}
	}
	for c, addr := range want {
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("add address %s: %w", c, err)
		}
	}
	return nil
}
