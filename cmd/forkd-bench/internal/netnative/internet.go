package netnative

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the internet and of the host before it.
const (
	hostAddr = "198.51.100.2"
	router   = "198.51.100.1"
	resolver = "9.9.9.9"
	site     = "93.184.216.34" // where everything is served
	siteName = "example.com"
)

// newInternet makes the internet, and a link to it from the process's own namespace.
func newInternet() (_ *space, err error) {
	s, err := newSpace(true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wan"}, PeerName: "isp"}
	if err := netlink.LinkAdd(link); err != nil {
		return nil, fmt.Errorf("add link to the internet: %w", err)
	}
	peer, err := netlink.LinkByName("isp")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetNsFd(peer, s.fd); err != nil {
		return nil, fmt.Errorf("move link: %w", err)
	}
	err = s.do(func() error {
		return errors.Join(up("isp", router+"/30"), up("lo", site+"/32", resolver+"/32"))
	})
	if err := errors.Join(err, up("wan", hostAddr+"/30"), up("lo")); err != nil {
		return nil, err
	}
	return s, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(router)})
}

// up gives a link of this thread's namespace addresses, and sets it up.
func up(name string, addrs ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("give %s %s: %w", name, a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}
