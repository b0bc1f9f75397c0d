package usernet

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// linuxGuest is Linux's own network stack as the guest: a network namespace with a tap device. Its
// frames have the same header as the virtio device's.
type linuxGuest struct {
	engine *Engine
	tap    *os.File
	ns     int // the namespace
	loss   float64
	wg     sync.WaitGroup
}

// newLinuxGuest creates a namespace, and an engine behind its device.
func newLinuxGuest(t testing.TB, c Config, loss float64) *linuxGuest {
	t.Helper()
	g := &linuxGuest{loss: loss}
	c.Guest = g
	if err := inThread(g.makeNamespace); err != nil {
		t.Skipf("no network namespace of its own with a tap: %v", err)
	}
	g.engine = New(c)
	g.wg.Add(1)
	go g.transmit()
	t.Cleanup(func() {
		g.engine.Close()
		g.tap.Close()
		g.wg.Wait()
		unix.Close(g.ns)
	})
	return g
}

// inThread runs f in a new thread, which then ends.
func inThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

func (g *linuxGuest) makeNamespace() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if g.ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if g.tap, err = openTap("eth0"); err != nil {
		return err
	}
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, a := range []string{"192.0.0.2/29", "fd66:6f72:6b64::2/64"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add %s: %w", a, err)
		}
	}
	return errors.Join(netlink.LinkSetHardwareAddr(link, guestMAC[:]), netlink.LinkSetUp(link),
		defaultRoute(link, guestnet.Gateway4), defaultRoute(link, guestnet.Gateway6))
}

func defaultRoute(link netlink.Link, via netip.Addr) error {
	zero := net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if via.Is6() {
		zero = net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: &zero, Gw: via.AsSlice()})
}

// openTap creates a tap with all offloads that the virtio device offers.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make tap: %w", err)
	}
	size := int32(virtionet.HeaderSize)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETVNETHDRSZ, uintptr(unsafe.Pointer(&size))); e != 0 {
		unix.Close(fd)
		return nil, fmt.Errorf("size of tap's header: %w", e)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_TSO_ECN); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("tap's offload: %w", err)
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

func (g *linuxGuest) transmit() {
	defer g.wg.Done()
	buf := make([]byte, virtionet.HeaderSize+frameMax)
	for {
		n, err := g.tap.Read(buf)
		if err != nil {
			return
		}
		if g.loss == 0 || rand.Float64() >= g.loss {
			g.engine.Transmit(virtionet.DecodeHeader(buf), buf[virtionet.HeaderSize:n])
		}
	}
}

var tapFrames = sync.Pool{New: func() any { return new([virtionet.HeaderSize + frameMax]byte) }}

// Receive implements virtionet.Guest. A tap takes frames while its namespace has memory for them.
func (g *linuxGuest) Receive(h virtionet.Header, frame []byte) bool {
	if g.loss > 0 && rand.Float64() < g.loss {
		return true
	}
	buf := tapFrames.Get().(*[virtionet.HeaderSize + frameMax]byte)
	defer tapFrames.Put(buf)
	h.Encode(buf[:])
	n := copy(buf[virtionet.HeaderSize:], frame)
	g.tap.Write(buf[:virtionet.HeaderSize+n])
	return true
}

// dial connects from inside the namespace.
func (g *linuxGuest) dial(network, to string) (c net.Conn, err error) {
	err = inThread(func() error {
		if err := unix.Setns(g.ns, unix.CLONE_NEWNET); err != nil {
			return err
		}
		a, err := netip.ParseAddrPort(to)
		if err != nil {
			return err
		}
		c, err = dialHere(network, a)
		return err
	})
	return c, err
}

// dialHere connects in this thread, because of its namespace. Package net may use another.
func dialHere(network string, to netip.AddrPort) (net.Conn, error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(to.Port()), Addr: [4]byte(to.Addr().AsSlice())}
	if to.Addr().Is6() {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	if network == "udp" {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "guest's socket")
	defer f.Close()
	if err := unix.Connect(fd, sa); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

func TestLinuxAsTheGuest(t *testing.T) {
	for _, c := range []struct {
		name string
		to   string
		loss float64
		size int64
	}{
		{"IPv4", far.String(), 0, 64 << 20}, {"IPv6", far6.String(), 0, 64 << 20},
		{"loss", far.String(), 0.003, 4 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newLinuxGuest(t, Config{Dialer: &hostDialer{tcp: listen(t, echoServer)}}, c.loss)
			conn, err := g.dial("tcp", c.to)
			if err != nil {
				t.Fatalf("connect: %v; %+v", err, g.engine.Stats())
			}
			defer conn.Close()
			sent, got := sha256.New(), sha256.New()
			wrote := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.MultiWriter(conn, sent), io.LimitReader(rand.NewChaCha8([32]byte{}), c.size))
				wrote <- errors.Join(err, conn.(*net.TCPConn).CloseWrite())
			}()
			n, err := io.Copy(got, conn)
			if err := errors.Join(err, <-wrote); err != nil || n != c.size || !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
				t.Errorf("%d bytes came back, want %d: %v", n, c.size, err)
			}
			s := g.engine.Stats()
			if per := s.Bytes / s.Frames; c.loss == 0 && per < 2000 {
				t.Errorf("%d bytes a frame: the guest does not leave segmentation to us", per)
			}
			if s.BadFrames != 0 {
				t.Errorf("stats are %+v", s)
			}
		})
	}
}

func TestRefusalsAsLinuxSeesThem(t *testing.T) {
	for _, to := range []string{far.String(), far6.String()} {
		for reason, want := range map[Reason]error{
			Reset: syscall.ECONNREFUSED, Prohibited: syscall.ECONNREFUSED,
			HostUnreachable: syscall.EHOSTUNREACH, NetUnreachable: syscall.ENETUNREACH,
		} {
			t.Run(fmt.Sprintf("%v to %s", want, to), func(t *testing.T) {
				g := newLinuxGuest(t, Config{Dialer: refusing(reason)}, 0)
				start := time.Now()
				if _, err := g.dial("tcp", to); !errors.Is(err, want) {
					t.Errorf("connect: %v, want %v", err, want)
				}
				if d := time.Since(start); d > 5*time.Second {
					t.Errorf("it took %s", d)
				}
			})
		}
	}
	t.Run("UDP", func(t *testing.T) {
		g := newLinuxGuest(t, Config{Dialer: refusing(Reset)}, 0)
		c, err := g.dial("udp", far.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte("x"))
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("read: %v, want %v", err, syscall.ECONNREFUSED)
		}
	})
}
