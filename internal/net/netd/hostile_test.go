package netd_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
)

// forge sends bytes that a correct VMM does not send, and expects the wire to end.
func TestForgedMessagesEndTheirWireAlone(t *testing.T) {
	open := netwire.Message{Kind: netwire.Open, ID: 7, Flow: netwire.Flow{
		Protocol: netwire.TCP, Guest: guestAddr, Far: netip.MustParseAddrPort("127.0.0.9:9"),
	}}
	sound, err := open.Encode()
	if err != nil {
		t.Fatal(err)
	}
	refused, err := netwire.Message{Kind: netwire.Refused, Reason: netwire.Reset}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, send := range map[string]func(fd int) error{
		"garbage":             func(fd int) error { return unix.Send(fd, []byte("garbage"), 0) },
		"a long packet":       func(fd int) error { return unix.Send(fd, make([]byte, 5000), 0) },
		"what forkd-net says": func(fd int) error { return unix.Send(fd, refused[:], 0) },
		"descriptors":         func(fd int) error { return unix.Sendmsg(fd, sound[:], unix.UnixRights(0, 1, 2), nil, 0) },
		"an id twice": func(fd int) error {
			return errors.Join(unix.Send(fd, sound[:], 0), unix.Send(fd, sound[:], 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			stuck := make(chan struct{})
			b.rules.set(func(q netd.Question) netd.Verdict {
				if q.Far.Port() == 9 {
					<-stuck // so the first Open is not answered yet
				}
				return allowAll(q)
			})
			defer close(stuck)
			other := b.bind("other", true)
			ours, theirs, err := netwire.Pair()
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			if _, err := b.s.Bind(control.Binding{VM: "a"}, descriptor(t, theirs)); err != nil {
				t.Fatal(err)
			}
			raw, err := ours.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			raw.Control(func(fd uintptr) {
				if err := send(int(fd)); err != nil {
					t.Error(err)
				}
			})
			eventually(t, "the end of the wire", func() bool { return !b.s.List()[0].Connected })
			if s := b.s.Stats(); s.Broken != 1 || s.VMs != 2 {
				t.Errorf("stats %+v", s)
			}
			_ = other
		})
	}
}

func TestAnotherVMGoesOnBesideABrokenOne(t *testing.T) {
	b := newBench(t)
	good, bad := b.bind("good", true), b.bind("bad", true)
	c := good.openTCP(listen(t, echoTCP))
	if err := bad.wire.Send(netwire.Message{Kind: netwire.Refused, Reason: netwire.Reset}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the wire", func() bool { return b.s.Stats().Broken == 1 })
	c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if _, err := b.s.Bind(control.Binding{VM: "good"}, descriptor(t, devNull(t))); err == nil {
		t.Error("what is no wire was bound")
	}
	bad = b.bind("bad", true) // it may get another wire
	bad.openTCP(listen(t, echoTCP))
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAFloodIsRefusedAndCounted(t *testing.T) {
	b := newBench(t)
	b.rules.limits = netpolicy.Limits{Flows: 100, FlowsPerSecond: 300}
	g := b.bind("a", true)
	far := listen(t, echoTCP)
	var wait sync.WaitGroup
	var opened, limited int
	wait.Go(func() {
		for range 2000 {
			m, f, err := g.receive()
			switch {
			case err != nil:
				t.Error(err)
				return
			case f != nil:
				opened++
				defer f.Close()
			case m.Reason == netwire.Reset:
				limited++
			}
		}
	})
	for id := range uint32(2000) {
		m := netwire.Message{Kind: netwire.Open, ID: id, Flow: netwire.Flow{Protocol: netwire.TCP, Guest: guestAddr, Far: far}}
		if err := g.wire.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	wait.Wait()
	if s := b.s.Stats(); opened == 0 || opened > 100 || s.Limited != uint64(limited) || opened+limited != 2000 {
		t.Errorf("%d opened, %d limited; stats %+v", opened, limited, s)
	}
	b.s.Close()
	told := 0 // some reasons may have only one line
	for _, l := range b.lines() {
		if l.Verdict == control.Limited {
			told++
		}
	}
	if told == 0 || told > limited/100 {
		t.Errorf("%d limits are told in %d lines", limited, told)
	}
}

func TestDialsInFlightAreBoundedAndCancelled(t *testing.T) {
	b := newBench(t)
	stuck := make(chan struct{})
	b.rules.set(func(q netd.Question) netd.Verdict { <-stuck; return allowAll(q) })
	g := b.bind("a", true)
	far := listen(t, echoTCP)
	for id := range uint32(65) {
		m := netwire.Message{Kind: netwire.Open, ID: id, Flow: netwire.Flow{Protocol: netwire.TCP, Guest: guestAddr, Far: far}}
		if err := g.wire.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if m, _, err := g.receive(); err != nil || m.ID != 64 || m.Kind != netwire.Refused {
		t.Errorf("answer %+v: %v", m, err)
	}
	for id := range uint32(64) {
		if err := g.wire.Send(netwire.Message{Kind: netwire.Cancel, ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	g.wire.Send(netwire.Message{Kind: netwire.Cancel, ID: 12345}) // an unknown flow, which may have been answered
	g.id = 1000
	// The answer to this request, which needs no judge, shows that the earlier messages were read.
	if m, _ := g.ask(netwire.TCP, netip.MustParseAddrPort("192.0.0.1:22")); m.Reason != netwire.Reset {
		t.Errorf("answer %+v", m)
	}
	close(stuck)
	eventually(t, "the end of what was cancelled", func() bool { return b.s.Stats().Flows == 0 })
	g.openTCP(far)
}

func TestDescriptorsThatRunOutCostRefusalsOnly(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	g := b.bind("a", false)
	far := listen(t, echoTCP)
	c := g.openTCP(far)
	c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err != nil { // the far end has accepted it
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 3, Max: old.Max} // no new descriptor gets such a low number
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	for range 10 {
		if answer, f := g.ask(netwire.TCP, far); f != nil || answer.Kind != netwire.Refused {
			t.Errorf("answer %+v", answer)
		}
	}
	if s := b.s.Stats(); s.Descriptor == 0 {
		t.Errorf("stats %+v", s)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	g.openTCP(far)
}

func TestFlowsLeaveNoDescriptors(t *testing.T) {
	bothWays(t, func(t *testing.T, b *bench, g *guest) {
		far := listen(t, echoTCP)
		hangUp(g.openTCP(far))
		eventually(t, "the end of the first", func() bool { return b.s.Stats().Flows == 0 })
		before := countFiles(t)
		for range 200 {
			hangUp(g.openTCP(far))
		}
		eventually(t, "the end of all", func() bool { return b.s.Stats().Flows == 0 })
		// Pipes for splicing stay in a pool for a while.
		eventually(t, "as few descriptors as before", func() bool { return countFiles(t) <= before+40 })
	})
}

func countFiles(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// named makes rules under which only the name decides at ports of the test.
func (b *bench) named(names map[string][]netip.Addr) {
	b.rules.names = names
	b.rules.set(func(q netd.Question) netd.Verdict {
		if q.Name == "" {
			return netd.Verdict{Outcome: netd.NeedName, Text: "the name decides"}
		}
		return netd.Verdict{Outcome: netd.Allow, Rule: q.Name, Name: q.Name}
	})
}

func TestANameThatIsReadDecidesAndIsResolvedAnew(t *testing.T) {
	b := newBench(t)
	real := listenAt(t, "127.0.0.2:0", func(c *net.TCPConn) {
		buf := make([]byte, 1000)
		n, _ := c.Read(buf)
		c.Write(append([]byte("real: "), buf[:n]...))
	})
	b.named(map[string][]netip.Addr{"good.example.com": {netip.MustParseAddr("127.0.0.2")}})
	g := b.bind("a", true)
	forged := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), real.Port()) // without a listener
	c := g.openTCP(forged)
	const request = "GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n"
	io.WriteString(c, request)
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "real: "+request {
		t.Errorf("read %q: %v", got, err)
	}
	c = g.openTCP(forged)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: bad.example.com\r\n\r\n")
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d: %v", n, err)
	}
	c = g.openTCP(forged)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: good.example.com\r\nHost: bad.example.com\r\n\r\n")
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d: %v", n, err)
	}
	list, _ := b.s.Refusals("a")
	if len(list) != 2 || list[1].Name != "bad.example.com" || list[1].NameSource != "host" ||
		!strings.Contains(list[0].Reason, "two Host headers") {
		t.Errorf("refusals %+v", list)
	}
}

func TestAServerNameIsReadFromTLS(t *testing.T) {
	b := newBench(t)
	got := make(chan string, 1)
	real := listenAt(t, "127.0.0.2:0", func(c *net.TCPConn) {
		tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			got <- h.ServerName
			return nil, errors.New("enough")
		}}).Handshake()
	})
	b.named(map[string][]netip.Addr{"good.example.com": {netip.MustParseAddr("127.0.0.2")}})
	c := b.bind("a", true).openTCP(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), real.Port()))
	tls.Client(c, &tls.Config{ServerName: "good.example.com"}).Handshake()
	select {
	case name := <-got:
		if name != "good.example.com" {
			t.Errorf("name %q", name)
		}
	case <-time.After(20 * time.Second):
		t.Error("no hello came")
	}
}

func TestAnAllowedAddressGoesOnWithoutAName(t *testing.T) {
	b := newBench(t)
	b.rules.set(func(netd.Question) netd.Verdict { return netd.Verdict{Outcome: netd.Allow, Peek: true} })
	c := b.bind("a", true).openTCP(listen(t, echoTCP))
	const text = "SSH-2.0-none\r\n"
	io.WriteString(c, text)
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != text {
		t.Errorf("read %q: %v", buf, err)
	}
}

func TestAVMMThatTakesNoRefusalsIsNotRead(t *testing.T) {
	b := newBench(t)
	b.rules.limits = netpolicy.Limits{Flows: 1, FlowsPerSecond: 1 << 16, DNSPerSecond: 1}
	stuck := make(chan struct{})
	b.rules.set(func(netd.Question) netd.Verdict {
		<-stuck // the first flow uses up the limit
		return netd.Verdict{Text: "no"}
	})
	deaf, other := b.bind("deaf", true), b.bind("other", true)
	const flood = 2000 // more than both sockets can hold
	asked := make(chan error, 1)
	go func() {
		var err error
		for id := uint32(0); id < flood && err == nil; id++ {
			err = deaf.wire.Send(netwire.Message{Kind: netwire.Open, ID: id, Flow: netwire.Flow{
				Protocol: netwire.TCP, Guest: guestAddr, Far: netip.MustParseAddrPort("127.0.0.1:9")}})
		}
		asked <- err
	}()
	eventually(t, "refusals", func() bool { return b.s.Stats().Limited > 100 })
	udp := netip.MustParseAddrPort("192.0.0.1:99") // the gateway answers itself
	if m, _ := other.ask(netwire.UDP, udp); m.Kind != netwire.Refused {
		t.Errorf("the other one is answered %+v", m)
	}
	if n := b.s.Stats().Limited; n >= flood-1 {
		t.Errorf("%d were read, though nobody takes the answers", n)
	}
	close(stuck)
	for range flood {
		if m, f, err := deaf.wire.Receive(true); err != nil || m.Kind != netwire.Refused {
			t.Fatalf("%+v, %v, %v", m, f, err)
		}
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
}
