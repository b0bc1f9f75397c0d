package netnative

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/vm/hostnet/link"
	"github.com/forkd/forkd/internal/vm/netclient"
	"github.com/forkd/forkd/internal/vm/usernet"
	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
)

// guestMAC is the MAC address of a parent.
var guestMAC = net.HardwareAddr{0x02, 0x66, 0x6f, 0x72, 0x6b, 0x02}

// frameMax is the size of the longest frame with segmentation offload, including its header.
const frameMax = virtionet.HeaderSize + 14 + 65536

// guest is Linux's network stack in a separate namespace, behind a tap whose frames have the virtio
// device's header. Like a VMM it has an engine and a wire.
type guest struct {
	*space
	tap    *os.File
	engine *usernet.Engine
	client netclient.Client
	wait   sync.WaitGroup
}

// newGuest makes a guest. It takes over the wire. The other end of the wire is bound in forkd-net.
func newGuest(wire *os.File) (_ *guest, err error) {
	g := &guest{}
	if err := g.client.SetWire(wire); err != nil {
		return nil, err
	}
	if g.space, err = newSpace(true); err == nil {
		err = g.do(g.configure)
	}
	if err != nil {
		g.close()
		return nil, fmt.Errorf("make a guest: %w", err)
	}
	g.engine = usernet.New(usernet.Config{Guest: g, Dialer: &g.client,
		Limits: usernet.Limits{Flows: 1 << 16, FlowsPerSec: 1 << 20}})
	g.wait.Go(g.transmit)
	return g, nil
}

func (g *guest) close() {
	if g.engine != nil {
		g.engine.Close()
	}
	if g.tap != nil {
		g.tap.Close()
	}
	g.wait.Wait()
	g.client.Close()
	if g.space != nil {
		g.space.close()
	}
}

// configure runs in the guest's namespace.
func (g *guest) configure() (err error) {
	if g.tap, err = openTap("eth0"); err != nil {
		return err
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	all := net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	return errors.Join(
		netlink.LinkSetHardwareAddr(eth0, guestMAC), link.Up("eth0", "192.0.0.2/29"),
		netlink.RouteAdd(&netlink.Route{
			LinkIndex: eth0.Attrs().Index, Dst: &all, Gw: net.IP(guestnet.Gateway4.AsSlice()),
		}))
}

// openTap makes a tap with all offloads of the virtio device.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	const offload = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, virtionet.HeaderSize)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offload)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make a tap: %w", err)
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

// transmit passes the guest's frames to the engine.
func (g *guest) transmit() {
	buf := make([]byte, frameMax)
	for {
		n, err := g.tap.Read(buf)
		if err != nil {
			return
		}
		g.engine.Transmit(virtionet.DecodeHeader(buf), buf[virtionet.HeaderSize:n])
	}
}

var frames = sync.Pool{New: func() any { return new([frameMax]byte) }}

// Receive implements virtionet.Guest. A tap accepts frames while its namespace has memory for them.
func (g *guest) Receive(h virtionet.Header, frame []byte) bool {
	buf := frames.Get().(*[frameMax]byte)
	defer frames.Put(buf)
	h.Encode(buf[:])
	n := copy(buf[virtionet.HeaderSize:], frame)
	g.tap.Write(buf[:virtionet.HeaderSize+n])
	return true
}
