// Package link sets network links up, in the network namespace of the calling thread. Benches and
// tests with their own namespaces use it; the daemon configures no links. Lock the OS thread after
// changing its namespace.
package link

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Up assigns addresses, with their prefix lengths, to a link, and sets it up.
func Up(name string, addrs ...string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("give %s %s: %w", name, a, err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}
