package memberlink

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/virtio/net"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeGuest takes frames while it has room.
type fakeGuest struct {
	mu     sync.Mutex
	full   bool
	frames chan []byte
}

func (g *fakeGuest) Receive(_ net.Header, frame []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.full {
		g.frames <- bytes.Clone(frame)
	}
	return !g.full
}

func (g *fakeGuest) MAC() [6]byte { return [6]byte{2, 1, 2, 3, 4, 5} }

// inner counts the frames for the other engine.
type inner struct{ sent, closed int }

func (i *inner) Transmit(net.Header, []byte) { i.sent++ }
func (*inner) Writable()                     {}
func (i *inner) Close()                      { i.closed++ }

func pair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	a, b, err := unixfd.Pair(unix.SOCK_SEQPACKET, "link")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(b.Fd()), true); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(b.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a, os.NewFile(uintptr(fd), "link")
}

func frameTo(dst string) []byte {
	f := make([]byte, 60)
	f[12], f[13], f[14] = 8, 0, 0x45
	a := netip.MustParseAddr(dst).As4()
	copy(f[atDst:], a[:])
	return f
}

func TestFramesToMembersTakeTheLink(t *testing.T) {
	var l Link
	woken := 0
	l.Wake(func() { woken++ })
	g, in := &fakeGuest{frames: make(chan []byte, 8)}, &inner{}
	e := l.Join(g, in)
	defer e.Close()
	e.Transmit(net.Header{}, frameTo("192.0.0.65"))
	if in.sent != 1 || l.Exists() {
		t.Fatal("without a link, the other engine refuses the guest's frame")
	}
	far, near := pair(t)
	l.Set(near)
	if woken != 1 || !l.Exists() {
		t.Error("the device is not told about its link")
	}
	e.Transmit(net.Header{Flags: net.NeedsChecksum}, frameTo("192.0.0.65"))
	for _, to := range []string{"192.0.0.1", "192.0.0.63", "192.0.0.128", "8.8.8.8"} {
		e.Transmit(net.Header{}, frameTo(to))
	}
	e.Transmit(net.Header{}, []byte("short"))
	buf := make([]byte, 1000)
	n, err := far.Read(buf)
	if err != nil || n != net.HeaderSize+60 || buf[0] != net.NeedsChecksum || in.sent != 6 {
		t.Errorf("the link has %d bytes, %v; the other engine %d frames", n, err, in.sent)
	}
	if _, err := far.Write(append(make([]byte, net.HeaderSize), frameTo("192.0.0.2")...)); err != nil {
		t.Fatal(err)
	}
	got := <-g.frames
	if [6]byte(got) != g.MAC() || !bytes.Equal(got[6:12], guestnet.GatewayMAC()) {
		t.Errorf("the guest gets the addresses % x", got[:12])
	}
}

func TestAnotherLinkReplacesTheFirst(t *testing.T) {
	var l Link
	g := &fakeGuest{frames: make(chan []byte, 8)}
	e := l.Join(g, &inner{})
	defer e.Close()
	old, near := pair(t)
	l.Set(near)
	far, near := pair(t)
	l.Set(near)
	if _, err := old.Read(make([]byte, 100)); err != io.EOF {
		t.Errorf("the first link ends with %v", err)
	}
	far.Write(append(make([]byte, net.HeaderSize), frameTo("192.0.0.2")...))
	<-g.frames
}

func TestAFullGuestHoldsUpItsLinkOnly(t *testing.T) {
	var l Link
	g, in := &fakeGuest{frames: make(chan []byte, 8), full: true}, &inner{}
	e := l.Join(g, in)
	far, near := pair(t)
	l.Set(near)
	message := append(make([]byte, net.HeaderSize), frameTo("192.0.0.2")...)
	far.Write(message)
	done := make(chan struct{})
	go func() { // the guest sends more than the link takes
		defer close(done)
		for range 10000 {
			e.Transmit(net.Header{}, frameTo("192.0.0.65"))
		}
	}()
	<-done
	g.mu.Lock()
	g.full = false
	g.mu.Unlock()
	e.Writable()
	select {
	case <-g.frames:
	case <-time.After(20 * time.Second):
		t.Error("the frame does not arrive after all")
	}
	g.mu.Lock()
	g.full = true
	g.mu.Unlock()
	far.Write(message)
	e.Close()
	e.Close()
	if in.closed == 0 {
		t.Error("the other engine is not closed")
	}
	_, late := pair(t)
	l.Set(late)
	if l.Exists() {
		t.Error("a closed VM takes a link")
	}
}
