package flows

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tap creates a network namespace for the calling goroutine's thread, for good, and in it a tap
// with the guest's addresses.
func tap(t *testing.T) *os.File {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("needs a network namespace: ", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	req, err := unix.NewIfreq("eth0")
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		t.Skip("needs a tap: ", err)
	}
	configure(t, "eth0")
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "tap")
	t.Cleanup(func() { f.Close() })
	return f
}

// configure does the same as a guest's agent.
func configure(t *testing.T, name string) {
	t.Helper()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	link, err := netlink.LinkByName(name)
	check("find link", err)
	check("set address", netlink.LinkSetHardwareAddr(link, guestMAC[:]))
	check("set up", netlink.LinkSetUp(link))
	for _, c := range []struct{ guest, router string }{{"192.0.0.2/29", "192.0.0.1"}, {"fd66::2/64", "fe80::1"}} {
		addr, err := netlink.ParseAddr(c.guest)
		check("parse address", err)
		addr.Flags = unix.IFA_F_NODAD
		check("add address", netlink.AddrAdd(link, addr))
		index, router := link.Attrs().Index, net.ParseIP(c.router)
		check("add neighbour", netlink.NeighAdd(&netlink.Neigh{
			LinkIndex: index, IP: router, HardwareAddr: peerMAC[:], State: netlink.NUD_PERMANENT,
		}))
		check("add route", netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: router}))
	}
	awaitLocal(t, "fd66::2")
}

// awaitLocal waits until the kernel takes packets to an IPv6 address. A kernel worker enables that
// after the address was added.
func awaitLocal(t *testing.T, addr string) {
	t.Helper()
	local := &netlink.Route{Table: unix.RT_TABLE_LOCAL}
	for deadline := time.Now().Add(20 * time.Second); ; {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, local, netlink.RT_FILTER_TABLE)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if r.Dst != nil && r.Dst.IP.Equal(net.ParseIP(addr)) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not become local", addr)
		}
	}
}

// kernel is a guest: this host's kernel behind a tap, and the table of its flows.
type kernel struct {
	t     *testing.T
	tap   *os.File
	table *Table
}

// next returns the next segment that the kernel sends.
func (k *kernel) next() packet {
	k.t.Helper()
	b := make([]byte, 2048)
	if err := k.tap.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		k.t.Fatal(err)
	}
	for {
		n, err := k.tap.Read(b)
		if err != nil {
			k.t.Fatal(err)
		}
		k.table.Sent(b[:n])
		if p, ok := parse(b[:n], true); ok && p.proto == protoTCP {
			return p
		}
	}
}

// give sends the kernel a segment from the far end of a flow.
func (k *kernel) give(of packet, flags uint8, seq, ack uint32, n int) {
	k.t.Helper()
	addr := func(a [16]byte, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom16(a).Unmap(), port)
	}
	frame := tcp(side{peerMAC, addr(of.key.far, of.key.farPort)}, side{guestMAC, addr(of.key.guest, of.key.guestPort)}, flags, seq, ack, n)
	p, _ := parse(frame, false)
	segment := frame[p.l4:]
	binary.BigEndian.PutUint16(segment[16:], ^fold(pseudo(&p.key, protoTCP, len(segment))+sum(segment)))
	if p.key.v4() {
		binary.BigEndian.PutUint16(frame[etherSize+10:], ^fold(sum(frame[etherSize:][:ipv4Size])))
	}
	k.write(frame)
	k.table.Delivered(frame)
}

func (k *kernel) write(frame []byte) {
	k.t.Helper()
	if _, err := k.tap.Write(frame); err != nil {
		k.t.Fatal(err)
	}
}

// connect begins a connection. The caller plays the far end.
func (k *kernel) connect(to string) (fd int, syn packet) {
	k.t.Helper()
	far := netip.MustParseAddrPort(to)
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(far.Port()), Addr: far.Addr().As16()}
	domain := unix.AF_INET6
	if far.Addr().Is4() {
		sa, domain = &unix.SockaddrInet4{Port: int(far.Port()), Addr: far.Addr().As4()}, unix.AF_INET
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Connect(fd, sa); !errors.Is(err, unix.EINPROGRESS) {
		k.t.Fatal(err)
	}
	for syn = k.next(); syn.flags&flagSYN == 0; syn = k.next() { // skip the rest of earlier connections
	}
	return fd, syn
}

// mustFail waits for a socket's error.
func (k *kernel) mustFail(fd int, want unix.Errno) {
	k.t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLERR}}
	if n, err := unix.Poll(poll, 20_000); err != nil || n != 1 {
		k.t.Fatalf("the flow goes on (%v): %+v", err, local(fd))
	}
	if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || unix.Errno(got) != want {
		k.t.Errorf("error %v, %v, want %v", unix.Errno(got), err, want)
	}
}

// Linux accepts the resets immediately, in any state of the connection.
func TestLinuxTakesTheResets(t *testing.T) {
	k := &kernel{t: t, tap: tap(t)}
	const isn = 9000
	for _, to := range []string{"198.51.100.7:443", "[2001:db8::7]:443"} {
		for _, c := range []struct {
			name string
			do   func(syn packet)
			want unix.Errno
		}{
			{"being opened", func(packet) {}, unix.ECONNREFUSED},
			{"idle", func(syn packet) {
				k.give(syn, flagSYN|flagACK, isn, syn.seq+1, 0)
				k.next()
			}, unix.ECONNRESET},
			{"opened, and its acknowledgement not seen", func(syn packet) {
				k.give(syn, flagSYN|flagACK, isn, syn.seq+1, 0)
			}, unix.ECONNRESET},
			{"data not acknowledged yet", func(syn packet) {
				k.give(syn, flagSYN|flagACK, isn, syn.seq+1, 0)
				k.next()
				for i := range uint32(5) {
					k.give(syn, flagACK, isn+1+i*700, syn.seq+1, 700)
				}
			}, unix.ECONNRESET},
			{"data behind a gap", func(syn packet) {
				k.give(syn, flagSYN|flagACK, isn, syn.seq+1, 0)
				k.next()
				k.give(syn, flagACK, isn+1+700, syn.seq+1, 700)
				k.next()
			}, unix.ECONNRESET},
		} {
			t.Logf("%s: %s", to, c.name) // not a subtest, which would run in another thread
			k.table, _ = newTable()
			fd, syn := k.connect(to)
			c.do(syn)
			child, _ := clone(t, k.table)
			for frame := child.Reset(guestMAC); frame != nil; frame = child.Reset(guestMAC) {
				k.write(frame)
				child.ResetDone()
			}
			k.mustFail(fd, c.want)
		}
	}
}

// Linux finds the socket of the answer to a stopped datagram.
func TestLinuxHearsOfStoppedDatagrams(t *testing.T) {
	k := &kernel{t: t, tap: tap(t)}
	for _, far := range []netip.AddrPort{netip.MustParseAddrPort("198.51.100.7:443"), netip.MustParseAddrPort("[2001:db8::7]:443")} {
		var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(far.Port()), Addr: far.Addr().As16()}
		domain := unix.AF_INET6
		if far.Addr().Is4() {
			sa, domain = &unix.SockaddrInet4{Port: int(far.Port()), Addr: far.Addr().As4()}, unix.AF_INET
		}
		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, sa); err != nil {
			t.Fatal(err)
		}
		table, _ := newTable()
		for i := range 2 {
			if _, err := unix.Write(fd, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			if answer := k.datagram(table); i == 1 && answer == nil {
				t.Fatal("the clone's is not stopped")
			} else if answer != nil {
				k.write(answer)
			}
			if i == 0 {
				table, _ = clone(t, table)
			}
		}
		k.mustFail(fd, unix.ECONNREFUSED)
	}
}

// datagram waits for a datagram of the kernel and returns the table's answer.
func (k *kernel) datagram(table *Table) (answer []byte) {
	k.t.Helper()
	b := make([]byte, 2048)
	if err := k.tap.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		k.t.Fatal(err)
	}
	for {
		n, err := k.tap.Read(b)
		if err != nil {
			k.t.Fatal(err)
		}
		if p, ok := parse(b[:n], true); ok && p.proto == protoUDP && !onWire(p.key.far) {
			answer, _ = table.Sent(b[:n])
			return answer
		}
	}
}

// local returns a socket's own address, for a message.
func local(fd int) unix.Sockaddr {
	sa, _ := unix.Getsockname(fd)
	return sa
}
