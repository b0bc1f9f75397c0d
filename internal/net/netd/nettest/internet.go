package nettest

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/hostnet/link"
)

// Addresses of the test network.
const (
	// HostAddr is the host's own address towards the internet.
	HostAddr = "198.51.100.2"
	router   = "198.51.100.1"
	host6    = "2001:db8:51::2"
	router6  = "2001:db8:51::1"
	// Resolver is the address of the DNS server.
	Resolver = "9.9.9.9"
)

// Public are the internet's addresses. Tests may listen on any of them.
var Public = []string{
	"93.184.216.34", "93.184.216.35", "93.184.216.36", "93.184.216.37", "151.101.1.69", "151.101.2.132", Resolver,
	"2606:2800:220:1:248:1893:25c8:1946",
}

// Internet is the other side of the host's only link.
type Internet struct {
	ns *os.File // its network namespace
}

var (
	once     sync.Once
	internet *Internet
	errMade  error
)

// New returns the process's internet. The first call creates it. Without namespaces it skips the
// test.
func New(t testing.TB) *Internet {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Skip("it needs user and network namespaces (unshare -rn), which cannot be had here")
	}
	once.Do(func() { internet, errMade = build() })
	if errMade != nil {
		t.Fatal(errMade)
	}
	return internet
}

// build creates the namespace and the link. The host's end is in the process's own namespace.
func build() (*Internet, error) {
	n := &Internet{}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wan"}, PeerName: "isp"}
	err := onThread(func() error {
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add link: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	made := make(chan error)
	move := make(chan struct{})
	go func() { // its thread is discarded because it is in the other namespace
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.ns, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		made <- err
		if err != nil {
			return
		}
		<-move
		made <- n.configure()
	}()
	if err := <-made; err != nil {
		return nil, err
	}
	err = onThread(n.configureHost)
	close(move)
	if theirs := <-made; theirs != nil {
		return nil, theirs
	}
	if err != nil {
		return nil, err
	}
	return n, onThread(addRoutes)
}

func (n *Internet) configureHost() error {
	peer, err := netlink.LinkByName("isp")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetNsFd(peer, int(n.ns.Fd())); err != nil {
		return fmt.Errorf("move link: %w", err)
	}
	return link.Up("wan", HostAddr+"/30", host6+"/64")
}

// configure runs in the internet's namespace.
func (n *Internet) configure() error {
	if err := link.Up("isp", router+"/30", router6+"/64"); err != nil {
		return err
	}
	var all []string
	for _, a := range Public {
		bits := "/32"
		if net.ParseIP(a).To4() == nil {
			bits = "/128"
		}
		all = append(all, a+bits)
	}
	return link.Up("lo", all...)
}

func addRoutes() error {
	if err := link.Up("lo"); err != nil {
		return err
	}
	for _, gateway := range []string{router, router6} {
		if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}); err != nil {
			return fmt.Errorf("add route by %s: %w", gateway, err)
		}
	}
	return nil
}

// onThread runs f on one thread, in the namespace of the process.
func onThread(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return f()
}

// do runs f in the internet. Sockets created by f stay there.
func (n *Internet) do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(n.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the internet: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Listen listens in the internet until the test ends.
func (n *Internet) Listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	err := n.do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// ListenPacket listens for datagrams in the internet until the test ends.
func (n *Internet) ListenPacket(t testing.TB, addr string) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	err := n.do(func() (err error) {
		c, err = net.ListenPacket("udp", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
