package network

import (
	"context"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/hostnet"
)

const (
	tapPrefix = "fk-"
	tapMAC    = "02:66:6f:72:6b:01" // the gateway's address in guests
	tapAddr   = "192.0.0.1"
	guestAddr = "192.0.0.2"
)

// tap is a tap of an operator: a device with the gateway's addresses, and Linux behind it.
type tap struct {
	name  string
	conns chan net.Conn // connections to handPort
}

// newTap makes a tap for the duration of the test. Its servers accept connections only from this
// tap, because all taps have the same addresses.
func newTap(t *testing.T, name string) *tap {
	t.Helper()
	mac, err := net.ParseMAC(tapMAC)
	if err != nil {
		t.Fatal(err)
	}
	link := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP,
		Flags: netlink.TUNTAP_NO_PI}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatalf("make tap %s: %v", name, err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	addr, err := netlink.ParseAddr(tapAddr + "/29")
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"MAC": netlink.LinkSetHardwareAddr(link, mac), "address": netlink.AddrAdd(link, addr), "up": netlink.LinkSetUp(link),
	} {
		if err != nil {
			t.Fatalf("%s of tap %s: %v", what, name, err)
		}
	}
	p := &tap{name: name, conns: make(chan net.Conn, 4)}
	accept(p.listen(t, handPort), func(c net.Conn) { p.conns <- c })
	accept(p.listen(t, bulkPort), bulk)
	return p
}

// own binds a socket to the tap.
func (p *tap) own(_, _ string, c syscall.RawConn) (err error) {
	err2 := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), p.name) })
	if err == nil {
		err = err2
	}
	return err
}

func (p *tap) listen(t *testing.T, port string) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{Control: p.own}).Listen(t.Context(), "tcp4", net.JoinHostPort(tapAddr, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// dial connects to the guest.
func (p *tap) dial(t *testing.T, port string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := (&net.Dialer{Control: p.own}).DialContext(ctx, "tcp4", net.JoinHostPort(guestAddr, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// forkOn makes one child of a snapshot with a tap.
func (w *world) forkOn(t *testing.T, tag, tap string) (api.SandboxInfo, error) {
	t.Helper()
	n := 1
	res, err := w.Client.Fork(t.Context(),
		api.CreateSandboxesRequest{SnapshotTag: tag, N: &n, Network: &api.NetworkPolicy{Tap: tap}})
	if err != nil {
		return api.SandboxInfo{}, err
	}
	sb := res.Sandboxes[0]
	if sb.Error != "" {
		t.Fatal(sb.Error)
	}
	t.Cleanup(func() {
		if err := w.Kill(sb.ID); err != nil && !client.IsNotFound(err) {
			t.Error(err)
		}
	})
	return sb, nil
}

// tapBulk is the number of bytes in each direction over a tap.
const tapBulk = 4 << 20

// A sandbox on an operator's tap reaches the hosts behind it, and no part of forkd's network.
func TestASandboxOnATap(t *testing.T) {
	kvmtest.Drawn(t)
	w := shared(t)
	first, second := newTap(t, tapPrefix+"0"), newTap(t, tapPrefix+"1")
	sb, err := w.forkOn(t, parentTag, first.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("bytes and pings pass both ways", func(t *testing.T) {
		w.wantText(t, sb.ID, `ping("`+tapAddr+`")`, "forkd")
		w.passes(t, sb.ID)
		w.run(t, sb.ID, `server = Server("`+guestAddr+`", 8001)`)
		wantEcho(t, first.dial(t, "8001"), "from outside")
	})
	t.Run("a tap that is taken is refused", func(t *testing.T) {
		_, err := w.forkOn(t, parentTag, first.name)
		if err == nil || !strings.Contains(err.Error(), sb.ID) || !strings.Contains(err.Error(), first.name) {
			t.Errorf("a second sandbox on it: %v, want an error that names %s", err, sb.ID)
		}
	})

	w.run(t, sb.ID, `answerer = Answerer("`+tapAddr+`", `+handPort+`)`)
	held := next(t, first.conns)
	w.run(t, sb.ID, `download = Download("`+tapAddr+`", `+handPort+`)`)
	next(t, first.conns) // sends no data
	const tag = "tapped"
	w.branch(t, sb.ID, api.BranchRequest{Tag: tag, Mode: api.BranchLive})
	wantEcho(t, held, "after the branch")
	clone, err := w.forkOn(t, tag, second.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a fork has a tap of its own and none of the connections", func(t *testing.T) {
		w.wantReset(t, clone.ID, "the connection that it inherited")
		w.passes(t, clone.ID)
		wantEcho(t, second.dial(t, "8001"), "to the clone")
		wantEcho(t, held, "after the fork")
		if a, b := w.mac(t, sb.ID), w.mac(t, clone.ID); a == b {
			t.Errorf("both have the MAC %s", a)
		}
	})
	t.Run("a rollback takes the tap over", func(t *testing.T) {
		if _, err := w.Client.Rollback(t.Context(), sb.ID, tag); err != nil {
			t.Fatal(err)
		}
		w.wantReset(t, sb.ID, "the connection of that moment")
		wantEcho(t, first.dial(t, "8001"), "after the rollback")
	})
	t.Run("a tap is free when its sandbox has ended", func(t *testing.T) {
		for id, tap := range map[string]*tap{sb.ID: first, clone.ID: second} {
			if err := w.Kill(id); err != nil {
				t.Fatal(err)
			}
			f, err := hostnet.Taps{tap.name}.Open(tap.name)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
	})
}

// passes transfers many bytes in each direction and checks them.
func (w *world) passes(t *testing.T, id string) {
	t.Helper()
	intact := value[struct{ Up, Down bool }](t, w, id, `bulk("`+tapAddr+`", `+bulkPort+`, `+strconv.Itoa(tapBulk)+`)`)
	if !intact.Up || !intact.Down {
		t.Errorf("%s: intact: %+v", id, intact)
	}
}

// wantReset expects a reset of the download of a new VM.
func (w *world) wantReset(t *testing.T, id, what string) {
	t.Helper()
	if end := value[*outcome](t, w, id, `download.out`); end == nil || end.Error != "ECONNRESET" {
		t.Errorf("%s: %s: %v, want ECONNRESET", id, what, end)
	}
}

func (w *world) mac(t *testing.T, id string) string {
	t.Helper()
	return value[string](t, w, id, `state()["mac"]`)
}
