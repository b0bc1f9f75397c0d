package tap

import (
	"bytes"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/hostnet"
	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
)

// fakeGuest keeps its received frames while it has room.
type fakeGuest struct {
	mu      sync.Mutex
	full    bool
	refused chan struct{}
	frames  chan []byte
}

func newFakeGuest() *fakeGuest {
	return &fakeGuest{refused: make(chan struct{}, 64), frames: make(chan []byte, 64)}
}

func (g *fakeGuest) Receive(_ virtionet.Header, frame []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full {
		g.refused <- struct{}{}
		return false
	}
	g.frames <- bytes.Clone(frame)
	return true
}

func (g *fakeGuest) setFull(full bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.full = full
}

// frame waits for a frame.
func (g *fakeGuest) frame(t *testing.T) []byte {
	t.Helper()
	f := g.frameWithin(10 * time.Second)
	if f == nil {
		t.Fatal("no frame came")
	}
	return f
}

// frameWithin waits for a frame, or returns nil.
func (g *fakeGuest) frameWithin(limit time.Duration) []byte {
	select {
	case f := <-g.frames:
		return f
	case <-time.After(limit):
		return nil
	}
}

// packets returns one end of a pair that keeps frames apart, like a tap. far is the other.
func packets(t *testing.T) (near, far *os.File) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far = os.NewFile(uintptr(p[0]), "near"), os.NewFile(uintptr(p[1]), "far")
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func start(t *testing.T, g virtionet.Guest, f *os.File) *Engine {
	t.Helper()
	e, err := New(Config{Guest: g, File: f, Offloads: func() (bool, bool, bool) { return true, true, true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func TestFramesGoBothWaysWithTheirHeaders(t *testing.T) {
	near, far := packets(t)
	g := newFakeGuest()
	e := start(t, g, near)
	h := virtionet.Header{Flags: virtionet.NeedsChecksum, GSOType: virtionet.GSOTCPv4, GSOSize: 1448, HeaderLen: 54}
	e.Transmit(h, []byte("from the guest"))
	b := make([]byte, 100)
	n, err := far.Read(b)
	if err != nil || n != virtionet.HeaderSize+14 || virtionet.DecodeHeader(b) != h || string(b[virtionet.HeaderSize:n]) != "from the guest" {
		t.Errorf("got %q, %v", b[:n], err)
	}
	for _, short := range [][]byte{{1}, make([]byte, virtionet.HeaderSize)} { // no frame
		if _, err := far.Write(short); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := far.Write(append(make([]byte, virtionet.HeaderSize), "to the guest"...)); err != nil {
		t.Fatal(err)
	}
	if got := g.frame(t); string(got) != "to the guest" {
		t.Errorf("got %q", got)
	}
	e.Close()
	if s := e.Stats(); s.FramesIn != 1 || s.BytesIn != 14 || s.FramesOut != 1 || s.BytesOut != 12 || s.Dropped != 0 {
		t.Errorf("counted %+v", s)
	}
}

func TestAFrameWithoutRoomWaitsAndIsInOrder(t *testing.T) {
	near, far := packets(t)
	g := newFakeGuest()
	e := start(t, g, near)
	g.setFull(true)
	for _, text := range []string{"first", "second"} {
		if _, err := far.Write(append(make([]byte, virtionet.HeaderSize), text...)); err != nil {
			t.Fatal(err)
		}
	}
	<-g.refused
	e.Writable() // there was no room after all
	<-g.refused
	g.setFull(false)
	e.Writable()
	if a, b := g.frame(t), g.frame(t); string(a) != "first" || string(b) != "second" {
		t.Errorf("got %q, %q", a, b)
	}
	g.setFull(true)
	if _, err := far.Write(append(make([]byte, virtionet.HeaderSize), "never"...)); err != nil {
		t.Fatal(err)
	}
	<-g.refused
	e.Close() // ends although a frame waits
	e.Close()
}

func TestWhatTheFarSideCannotTakeIsLost(t *testing.T) {
	near, far := packets(t)
	if err := unix.SetsockoptInt(int(near.Fd()), unix.SOL_SOCKET, unix.SO_SNDBUF, 4096); err != nil {
		t.Fatal(err)
	}
	e := start(t, newFakeGuest(), near)
	for range 1000 { // it never waits, even without a reader
		e.Transmit(virtionet.Header{}, make([]byte, 1000))
	}
	if s := e.Stats(); s.Dropped == 0 || s.Dropped+s.FramesIn != 1000 {
		t.Errorf("counted %+v", s)
	}
	far.Close()
	e.Close()
	e.Transmit(virtionet.Header{}, make([]byte, 1000))
}

// TestLinuxAnswersBehindATap makes the kernel of a namespace, with the gateway's address on a real
// tap, answer the guest's requests.
func TestLinuxAnswersBehindATap(t *testing.T) {
	f := realTap(t)
	if !Is(f) {
		t.Error("a tap is none")
	}
	near, _ := packets(t)
	if Is(near) {
		t.Error("a socket is a tap")
	}
	g := newFakeGuest()
	e := start(t, g, f)
	mac := net.HardwareAddr{2, 0x66, 0x6f, 0x72, 0x6b, 2}
	ask := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} // ARP, RFC 826: who has 192.0.0.1?
	ask = append(append(ask, mac...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	ask = append(append(ask, mac...), 192, 0, 0, 2, 0, 0, 0, 0, 0, 0, 192, 0, 0, 1)
	e.Transmit(virtionet.Header{Flags: virtionet.NeedsChecksum, ChecksumStart: 0xfff0}, ask) // the kernel refuses it
	if s := e.Stats(); s.Dropped != 1 {
		t.Errorf("a header that points nowhere: %+v", s)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		e.Transmit(virtionet.Header{}, ask) // the kernel may drop one, as any network may
		answer := g.frameWithin(time.Second)
		if len(answer) >= 42 && answer[12] == 8 && answer[13] == 6 && answer[21] == 2 {
			if !bytes.Equal(answer[:6], mac) || !bytes.Equal(answer[28:32], []byte{192, 0, 0, 1}) {
				t.Errorf("got % x", answer)
			}
			return
		} // otherwise the kernel's own, such as router solicitations
	}
	t.Errorf("no answer came; counted %+v", e.Stats())
}

// realTap opens a tap in its own namespace.
func realTap(t *testing.T) *os.File {
	t.Helper()
	var f *os.File
	var openErr error
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			link := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, Mode: netlink.TUNTAP_MODE_TAP,
				Flags: netlink.TUNTAP_NO_PI}
			if err := netlink.LinkAdd(link); err != nil {
				return err
			}
			addr, err := netlink.ParseAddr("192.0.0.1/29")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
			f, openErr = hostnet.Taps{"tap0"}.Open("tap0")
			return nil
		}()
	}()
	if err := <-done; err != nil {
		t.Skipf("no network namespace of its own with a tap: %v", err)
	}
	if openErr != nil {
		t.Fatal(openErr)
	}
	return f
}
