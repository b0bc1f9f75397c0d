package wire

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var errTest = errors.New("the daemon does not want it")

func TestASendThatIsGivenUpSendsNothing(t *testing.T) {
	a, b := seqpacket(t)
	sent := 0
	for ; ; sent++ {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errTest)
		err := a.Send(ctx, Message{ID: uint64(sent + 1)})
		cancel()
		if errors.Is(err, errTest) {
			break
		}
		if err != nil || sent > 1<<20 {
			t.Fatal(sent, err)
		}
	}
	buf := make([]byte, MaxMessage)
	for i := range sent {
		if m, _, err := b.Receive(buf, 0); err != nil || m.ID != uint64(i+1) {
			t.Fatalf("message %d: %+v, %v", i+1, m, err)
		}
	}
	// Usable again, and the clock of the limit restarts.
	if err := a.Send(t.Context(), Message{ID: 4711}); err != nil || !a.full.IsZero() {
		t.Fatal(err)
	}
	if m, _, err := b.Receive(buf, 0); err != nil || m.ID != 4711 {
		t.Errorf("after it came %+v, %v", m, err)
	}
}

// seqpacket returns a pair of connections.
func seqpacket(t *testing.T) (a, b *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if out[i], err = NewConn(c.(*net.UnixConn)); err != nil {
			t.Fatal(err)
		}
	}
	return out[0], out[1]
}
