package guest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// QEMU's user-mode network assigns these addresses. Using them directly saves a DHCP client and its round trips.
const (
	guestAddr = "10.0.2.15/24"
	gateway   = "10.0.2.2"
	resolver  = "10.0.2.3"
)

// HostAddress is the address of the host's own loopback inside the appliance: the gateway leads there.
const HostAddress = gateway

// IPv6Net is the appliance's IPv6 network, used only if the host has an IPv6 route. Its gateway leads to the host's
// loopback, too. It is not QEMU's default (fec0::/10), because lists of private networks no longer contain that.
const (
	IPv6Net    = "fd66:6f72:6b6d::/64"
	guestAddr6 = "fd66:6f72:6b6d::f/64"
	gateway6   = "fd66:6f72:6b6d::2" // QEMU's numbering
)

// OwnNetworks returns the networks that QEMU creates for the appliance. Each of them contains the host's
// loopback.
func OwnNetworks() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(guestAddr).Masked(), netip.MustParsePrefix(IPv6Net)}
}

func (a *appliance) configureNetwork() error {
	if err := setHostname(a.cfg.Hostname); err != nil {
		return err
	}
	if err := linkUp("lo"); err != nil {
		return err
	}
	eth, err := findEthernet(5 * time.Second)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(eth); err != nil {
		return fmt.Errorf("set %s up: %w", eth.Attrs().Name, err)
	}
	if err := addRoute(eth, guestAddr, gateway); err != nil {
		return err
	}
	if a.cfg.IPv6 {
		if err := addRoute(eth, guestAddr6, gateway6); err != nil {
			a.logf("IPv6: %v", err) // IPv4 still works
		}
	}
	return os.WriteFile("/etc/resolv.conf", []byte("nameserver "+resolver+"\n"), 0o644)
}

// addRoute adds an address and a default route through a gateway to a link.
func addRoute(link netlink.Link, address, gateway string) error {
	addr, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	if addr.IP.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD // there are no other hosts
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add address %s: %w", address, err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("add default route over %s: %w", gateway, err)
	}
	return nil
}

func linkUp(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// findEthernet waits for the first network device other than the loopback.
func findEthernet(limit time.Duration) (netlink.Link, error) {
	deadline := time.Now().Add(limit)
	for {
		links, err := netlink.LinkList()
		if err != nil {
			return nil, fmt.Errorf("list links: %w", err)
		}
		for _, l := range links {
			if l.Type() == "device" && l.Attrs().Flags&net.FlagLoopback == 0 {
				return l, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no network device after %s", limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
