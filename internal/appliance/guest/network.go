package guest

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
)

// QEMU's user-mode network hands out these addresses; using them directly
// spares the appliance a DHCP client and its round trips.
const (
	guestAddr = "10.0.2.15/24"
	gateway   = "10.0.2.2"
	resolver  = "10.0.2.3"
)

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
	addr, err := netlink.ParseAddr(guestAddr)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(eth, addr); err != nil {
		return fmt.Errorf("add address %s: %w", guestAddr, err)
	}
	if err := netlink.LinkSetUp(eth); err != nil {
		return fmt.Errorf("set %s up: %w", eth.Attrs().Name, err)
	}
	route := &netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.ParseIP(gateway)}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	return os.WriteFile("/etc/resolv.conf", []byte("nameserver "+resolver+"\n"), 0o644)
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

// findEthernet waits for the first network device that is not the loopback.
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
