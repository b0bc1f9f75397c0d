package guest

import (
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ethernet moves the test into a new network namespace with a device that is up.
func ethernet(t *testing.T) netlink.Link {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace: %v", err)
	}
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		t.Skipf("needs a tap device: %v", err)
	}
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return link
}

func TestRoutes(t *testing.T) {
	link := ethernet(t)
	for gw, addr := range map[string]string{gateway: guestAddr, gateway6: guestAddr6} {
		if err := addRoute(link, addr, gw); err != nil {
			t.Fatal(err)
		}
	}
	for far, gw := range map[string]string{"8.8.8.8": gateway, "2606:4700::1": gateway6} {
		r, err := netlink.RouteGet(net.ParseIP(far))
		if err != nil || len(r) != 1 || !r[0].Gw.Equal(net.ParseIP(gw)) {
			t.Errorf("to %s: %v, %v", far, r, err)
		}
	}
}

func TestIPv6IsAPrivateNetwork(t *testing.T) {
	n := netip.MustParsePrefix(IPv6Net)
	own, gw := netip.MustParsePrefix(guestAddr6).Addr(), netip.MustParseAddr(gateway6)
	if !n.Addr().IsPrivate() || !n.Contains(own) || !n.Contains(gw) || own == gw {
		t.Errorf("%s and %s in %s", own, gw, n)
	}
}
