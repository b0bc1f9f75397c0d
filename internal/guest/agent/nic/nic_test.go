package nic

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/guestnet"
)

// guest moves the test into its own network namespace, with a device of the guest's name. It
// returns the other end of the link; each read returns one frame. Subtests run outside the
// namespace.
func guest(t *testing.T) *os.File {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace: %v", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("needs a tap device: %v", err)
	}
	req, err := unix.NewIfreq(guestnet.Interface)
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		unix.Close(fd)
		t.Skipf("needs a tap device: %v", err)
	}
	wire := os.NewFile(uintptr(fd), "tap") // not earlier: before it is a device it cannot be polled
	t.Cleanup(func() { wire.Close() })
	return wire
}

func configure(t *testing.T) netlink.Link {
	t.Helper()
	if found, err := Configure(); !found || err != nil {
		t.Fatalf("found %v, %v", found, err)
	}
	return device(t)
}

func device(t *testing.T) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(guestnet.Interface)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestConfigure(t *testing.T) {
	guest(t)
	l := configure(t)
	if a := l.Attrs(); a.Flags&net.FlagUp == 0 || a.MTU != guestnet.MTU || a.TxQLen != queueLength {
		t.Errorf("the link is %+v", a)
	}
	if got := plan(t, l); got != whole {
		t.Errorf("got\n%swant\n%s", got, whole)
	}
	for name, want := range map[string]string{
		"net/ipv4/ping_group_range":           "0\t2147483647",
		"net/ipv4/ip_unprivileged_port_start": "0",
		"net/ipv6/conf/eth0/accept_ra":        "0",
		"net/ipv6/conf/eth0/addr_gen_mode":    "1",
		"net/ipv6/conf/eth0/accept_dad":       "0",
		"net/ipv6/conf/eth0/dad_transmits":    "0",
	} {
		got, err := os.ReadFile("/proc/sys/" + name)
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	configure(t) // as in a guest whose init is restarted
	if got := plan(t, l); got != whole {
		t.Errorf("again: got\n%swant\n%s", got, whole)
	}
}

const whole = `192.0.0.2/29
fd66:6f72:6b64::2/64
fe80::2/64
neighbour 192.0.0.1 02:66:6f:72:6b:01 permanent
neighbour fe80::1 02:66:6f:72:6b:01 permanent
default 192.0.0.1
default fe80::1
`

// plan returns the device's configuration as text.
func plan(t *testing.T, l netlink.Link) string {
	t.Helper()
	var b strings.Builder
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		tentative := ""
		if a.Flags&unix.IFA_F_TENTATIVE != 0 {
			tentative = " tentative"
		}
		fmt.Fprintf(&b, "%s%s\n", a.IPNet, tentative)
	}
	b.WriteString(sorted(strings.Split(b.String(), "\n"), &b))
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := netlink.NeighList(l.Attrs().Index, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			if n.State == unix.NUD_NOARP { // multicast
				continue
			}
			state := fmt.Sprint("in state ", n.State)
			if n.State == unix.NUD_PERMANENT {
				state = "permanent"
			}
			fmt.Fprintf(&b, "neighbour %s %s %s\n", n.IP, n.HardwareAddr, state)
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := netlink.RouteList(l, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.Gw != nil {
				fmt.Fprintf(&b, "default %s\n", r.Gw)
			}
		}
	}
	return b.String()
}

// sorted returns the lines in b in order and empties b.
func sorted(lines []string, b *strings.Builder) string {
	b.Reset()
	lines = slices.DeleteFunc(lines, func(s string) bool { return s == "" })
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func TestNoDeviceIsNoError(t *testing.T) {
	guest(t).Close() // the device ends with it
	if found, err := Configure(); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	if l, err := Open(); l != nil || err != nil {
		t.Errorf("opened %v, %v", l, err)
	}
}

// A new hardware address has no other cost for a clone, and sends no frames.
func TestHardwareAddressOfALiveLink(t *testing.T) {
	wire := guest(t)
	l := configure(t)
	frames(t, wire, 1500*time.Millisecond) // multicast reports from boot
	link, err := Open()
	if err != nil || link == nil {
		t.Fatal(link, err)
	}
	defer link.Close()
	for _, text := range []string{"06:00:00:00:00:07", "06:00:00:00:00:08"} {
		mac, _ := net.ParseMAC(text)
		began := time.Now()
		if err := link.SetMAC(mac); err != nil {
			t.Fatal(err)
		}
		t.Logf("took %v", time.Since(began))
		if got := device(t).Attrs(); got.HardwareAddr.String() != text || got.Flags&net.FlagUp == 0 {
			t.Errorf("the link is %+v", got)
		}
		if got := plan(t, l); got != whole {
			t.Errorf("got\n%swant\n%s", got, whole)
		}
	}
	if f := frames(t, wire, 200*time.Millisecond); len(f) > 0 {
		t.Errorf("it sent %x", f)
	}
	// The first packet goes to the gateway immediately, from the new address.
	say(t, "192.0.0.1:9")
	say(t, "8.8.8.8:9")
	say(t, "[2606:4700::1]:9")
	f := frames(t, wire, 200*time.Millisecond)
	want := append(append(net.HardwareAddr{}, guestnet.GatewayMAC()...), 6, 0, 0, 0, 0, 8)
	if len(f) != 3 {
		t.Fatalf("it sent %d frames: %x", len(f), f)
	}
	for _, frame := range f {
		if !bytes.HasPrefix(frame, want) {
			t.Errorf("it sent %x", frame)
		}
	}
}

// A guest modified by its user still works.
func TestHardwareAddressWithoutIPv6(t *testing.T) {
	guest(t)
	configure(t)
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0); err != nil {
		t.Skip(err)
	}
	link, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	if err := link.SetMAC(net.HardwareAddr{6, 0, 0, 0, 0, 9}); err != nil {
		t.Error(err)
	}
	if err := link.SetMAC(net.HardwareAddr{1, 0, 0, 0, 0, 9}); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("a group's address: %v", err)
	}
	if got := device(t).Attrs().HardwareAddr.String(); got != "06:00:00:00:00:09" {
		t.Errorf("it is %s", got)
	}
}

func say(t *testing.T, to string) {
	t.Helper()
	c, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// frames reads frames until none has arrived for the calm time.
func frames(t *testing.T, wire *os.File, calm time.Duration) (all [][]byte) {
	t.Helper()
	for {
		if err := wire.SetReadDeadline(time.Now().Add(calm)); err != nil {
			t.Fatal(err)
		}
		var b [4096]byte
		n, err := wire.Read(b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Clone(b[:n]))
	}
}

func TestResolvConf(t *testing.T) {
	const want = "nameserver 192.0.0.1\noptions edns0 timeout:2 attempts:2\n"
	for name, before := range map[string]func(t *testing.T, file string){
		"there is none":      func(*testing.T, string) {},
		"an empty one":       func(t *testing.T, file string) { write(t, file, "") },
		"one of the image's": func(t *testing.T, file string) { write(t, file, strings.Repeat("nameserver 8.8.8.8\n", 9)) },
		"a link to nothing":  func(t *testing.T, file string) { link(t, "../run/systemd/resolve/stub-resolv.conf", file) },
		"a link to a file": func(t *testing.T, file string) {
			write(t, file+".orig", "nameserver 8.8.8.8\n")
			link(t, file+".orig", file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "etc", "resolv.conf")
			before(t, file)
			for range 2 {
				if err := WriteResolvConf(file); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(file); err != nil || string(got) != want {
					t.Errorf("got %q, %v", got, err)
				}
			}
			if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() {
				t.Errorf("it is %v, %v", st, err)
			}
			if b, err := os.ReadFile(file + ".orig"); err == nil && string(b) != "nameserver 8.8.8.8\n" {
				t.Errorf("what it was a link to is %q", b)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, file); err != nil {
		t.Fatal(err)
	}
}

func FuzzErrorsIn(f *testing.F) {
	var q batch
	q.setAddress(3, guestnet.ParentMAC())
	q.setNeighbour(3, guestnet.Gateway6, guestnet.GatewayMAC())
	f.Add(q.b)
	f.Fuzz(func(t *testing.T, b []byte) {
		for range errorsIn(b) {
		}
	})
}
