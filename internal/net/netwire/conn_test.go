package netwire_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netwire"
)

func wire(t *testing.T) (vmm, netd *netwire.Conn) {
	t.Helper()
	a, b, err := netwire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	return conn(t, a), conn(t, b)
}

func conn(t *testing.T, f *os.File) *netwire.Conn {
	t.Helper()
	c, err := netwire.NewConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAnOpenIsAnsweredWithADescriptor(t *testing.T) {
	vmm, netd := wire(t)
	if err := vmm.Send(examples[0]); err != nil {
		t.Fatal(err)
	}
	m, f, err := netd.Receive(false)
	if err != nil || f != nil || m != examples[0] {
		t.Fatalf("received %+v, %v, %v", m, f, err)
	}
	ours, theirs, err := netwire.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := netd.SendOpened(m.ID, theirs); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	m, f, err = vmm.Receive(true)
	if err != nil || f == nil || m.Kind != netwire.Opened || m.ID != 1 {
		t.Fatalf("received %+v, %v, %v", m, f, err)
	}
	defer f.Close()
	if _, err := ours.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(f, got); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestDescriptorsComeWithOpenedOnly(t *testing.T) {
	for name, c := range map[string]struct {
		message  netwire.Message
		files    int
		withFile bool
	}{
		"one to forkd-net":      {examples[0], 1, false},
		"one with a refusal":    {examples[4], 1, true},
		"two with Opened":       {examples[3], 2, true},
		"none with Opened":      {examples[3], 0, true},
		"Opened to forkd-net":   {examples[3], 1, false},
		"many with an Open":     {examples[0], 200, false},
		"many with Opened":      {examples[3], 200, true},
		"none, to whom may not": {examples[3], 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, err := netwire.Pair()
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			before := countFiles(t)
			c2 := conn(t, b)
			sendRaw(t, a, c.message, c.files)
			m, f, err := c2.Receive(c.withFile)
			if !errors.Is(err, netwire.ErrMessage) || f != nil {
				t.Errorf("received %+v, %v, %v", m, f, err)
			}
			c2.Close()
			if n := countFiles(t); n > before {
				t.Errorf("%d descriptors are open, before there were %d", n, before)
			}
		})
	}
}

// countFiles counts this process's descriptors.
func countFiles(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

func sendRaw(t *testing.T, f *os.File, m netwire.Message, files int) {
	t.Helper()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var oob []byte
	if files > 0 {
		fds := make([]int, files)
		for i := range fds {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(int(f.Fd()), b[:], oob, nil, 0); err != nil {
		t.Fatal(err)
	}
}

func TestTheWireEndsWithItsOtherEnd(t *testing.T) {
	vmm, netd := wire(t)
	vmm.Close()
	if _, _, err := netd.Receive(false); !errors.Is(err, io.EOF) {
		t.Errorf("receive: %v", err)
	}
	if err := netd.Send(netwire.Message{Kind: netwire.Refused, ID: 1, Reason: netwire.Reset}); err == nil {
		t.Error("a message was sent to nobody")
	}
}

func TestLongAndEmptyPacketsAreNoMessages(t *testing.T) {
	a, b, err := netwire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	c := conn(t, b)
	if _, err := a.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Receive(false); !errors.Is(err, netwire.ErrMessage) {
		t.Errorf("a long packet: %v", err)
	}
}

func TestOnlySeqpacketIsAWire(t *testing.T) {
	a, b, err := netwire.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := netwire.NewConn(b); err == nil {
		t.Error("a stream socket became a wire")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := netwire.NewConn(f); err == nil {
		t.Error("a listener became a wire")
	}
}
