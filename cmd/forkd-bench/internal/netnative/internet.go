package netnative

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/forkd/forkd/internal/vm/hostnet/link"
)

// Addresses of the internet and of its host.
const (
	hostAddr = "198.51.100.2"
	router   = "198.51.100.1"
	resolver = "9.9.9.9"
	site     = "93.184.216.34" // all services listen here
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
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wan"}, PeerName: "isp"}
	if err := netlink.LinkAdd(veth); err != nil {
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
		return errors.Join(link.Up("isp", router+"/30"), link.Up("lo", site+"/32", resolver+"/32"))
	})
	if err := errors.Join(err, link.Up("wan", hostAddr+"/30"), link.Up("lo")); err != nil {
		return nil, err
	}
	return s, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(router)})
}
