package netclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/vm/usernet"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var flow = usernet.Flow{
	Protocol: usernet.TCP,
	Guest:    netip.MustParseAddrPort("192.0.0.2:40000"), Far: netip.MustParseAddrPort("198.51.100.7:80"),
}

var flowUDP = usernet.Flow{Protocol: usernet.UDP, Guest: flow.Guest, Far: flow.Far}

// forkdNet is the other end of a wire.
type forkdNet struct {
	*netwire.Conn
	got chan netwire.Message
}

// attach gives c a new wire and returns its other end.
func attach(t *testing.T, c *Client) *forkdNet {
	t.Helper()
	a, b, err := netwire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetWire(a); err != nil {
		t.Fatal(err)
	}
	conn, err := netwire.NewConn(b)
	if err != nil {
		t.Fatal(err)
	}
	n := &forkdNet{conn, make(chan netwire.Message, 1024)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, _, err := n.Receive(false)
			if err != nil {
				return
			}
			n.got <- m
		}
	}()
	t.Cleanup(func() {
		n.Close()
		<-done
	})
	return n
}

func newClient(t *testing.T) *Client {
	t.Helper()
	c := &Client{}
	t.Cleanup(c.Close)
	return c
}

func refusedAs(err error) usernet.Reason {
	var r *usernet.Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return 0
}

type dialed struct {
	stream usernet.Stream
	err    error
}

func dial(ctx context.Context, c *Client) <-chan dialed {
	done := make(chan dialed, 1)
	go func() {
		s, err := c.DialTCP(ctx, flow)
		done <- dialed{s, err}
	}()
	return done
}

func TestWithoutAWireEverythingIsRefused(t *testing.T) {
	c := newClient(t)
	if _, err := c.DialTCP(t.Context(), flow); refusedAs(err) != usernet.Prohibited {
		t.Errorf("dial: %v, want prohibited", err)
	}
	n := attach(t, c)
	n.Close()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := c.DialDatagrams(t.Context(), flowUDP); refusedAs(err) == usernet.Prohibited {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("after the wire's end flows are not refused")
		}
	}
	c.Close()
	a, b, err := netwire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := c.SetWire(a); err == nil {
		t.Error("a closed client took a wire")
	}
}

func TestAFlowIsHandedOver(t *testing.T) {
	c := newClient(t)
	n := attach(t, c)
	done := dial(t.Context(), c)
	m := <-n.got
	if m.Kind != netwire.Open || m.Flow.Far != flow.Far || m.Flow.Guest != flow.Guest || m.Flow.Protocol != netwire.TCP {
		t.Fatalf("asked for %+v", m)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	file, err := ours.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close() // like forkd-net's duplicate
	if err := n.SendOpened(m.ID, file); err != nil {
		t.Fatal(err)
	}
	file.Close()
	d := <-done
	if d.err != nil {
		t.Fatal(d.err)
	}
	far.Write([]byte("hello"))
	if err := d.stream.(*stream).WaitRead(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(d.stream, b); err != nil || string(b) != "hello" {
		t.Errorf("read %q, %v", b, err)
	}
	d.stream.Close()
	if _, err := far.Read(b); err != io.EOF {
		t.Errorf("the far end reads %v, want the end though there is a duplicate", err)
	}
}

// relay dials a stream that forkd-net relays, and returns both halves.
func relay(t *testing.T) (n *forkdNet, id uint32, s usernet.Stream, far *os.File) {
	t.Helper()
	c := newClient(t)
	n = attach(t, c)
	done := dial(t.Context(), c)
	near, far, err := netwire.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	id = (<-n.got).ID
	if err := n.SendOpened(id, near); err != nil {
		t.Fatal(err)
	}
	near.Close()
	d := <-done
	if d.err != nil {
		t.Fatal(d.err)
	}
	t.Cleanup(func() { d.stream.Close() })
	return n, id, d.stream, far
}

func TestAStreamPairCarriesHalfCloses(t *testing.T) {
	n, id, s, far := relay(t)
	s.Write([]byte("x"))
	s.CloseWrite()
	if got, err := io.ReadAll(far); string(got) != "x" || err != nil {
		t.Errorf("the far end got %q, %v", got, err)
	}
	far.Write([]byte("y"))
	far.Close()
	if err := n.Send(netwire.Message{Kind: netwire.Finished, ID: id}); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); string(got) != "y" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}

// If forkd-net does not confirm an end, it is not the end of the data: a truncated download must
// not look complete.
func TestAStreamThatIsCutOffIsReset(t *testing.T) {
	for name, end := range map[string]func(n *forkdNet, id uint32){
		"by forkd-net":       func(n *forkdNet, id uint32) { n.Send(netwire.Message{Kind: netwire.Broken, ID: id}) },
		"by forkd-net's end": func(n *forkdNet, _ uint32) { n.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			n, id, s, far := relay(t)
			far.WriteString("half")
			far.Close()
			end(n, id)
			if got, err := io.ReadAll(s); string(got) != "half" || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read %q, %v", got, err)
			}
		})
	}
}

func TestDatagramsKeepTheirBounds(t *testing.T) {
	c := newClient(t)
	n := attach(t, c)
	a, b, err := netwire.DatagramPair()
	if err != nil {
		t.Fatal(err)
	}
	far, err := net.FileConn(b)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	defer far.Close()
	go func() {
		m := <-n.got
		n.SendOpened(m.ID, a)
		a.Close()
	}()
	d, err := c.DialDatagrams(t.Context(), flowUDP)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	big := make([]byte, 60000)
	d.Write([]byte("one"))
	d.Write(big)
	buf := make([]byte, 70000)
	for _, want := range []int{4, 60001} {
		if got, err := far.Read(buf); got != want || err != nil || buf[0] != netwire.PacketData {
			t.Errorf("packet of %d bytes, %v, want %d", got, err, want)
		}
	}
	far.Write(append([]byte{netwire.PacketData}, big...))
	if got, err := d.Read(buf); got != len(big) || err != nil {
		t.Errorf("datagram of %d bytes, %v", got, err)
	}
	far.Write(netwire.RefusalPacket(netwire.Reset))
	if _, err := d.Read(buf); refusedAs(err) != usernet.Reset {
		t.Errorf("read: %v, want a refusal", err)
	}
	far.Write([]byte{9})
	if _, err := d.Read(buf); !errors.Is(err, netwire.ErrMessage) {
		t.Errorf("read: %v, want %v", err, netwire.ErrMessage)
	}
	far.Close()
	if _, err := d.Read(buf); err != io.EOF {
		t.Errorf("read: %v, want the end", err)
	}
}

func TestARefusalIsHandedOn(t *testing.T) {
	c := newClient(t)
	n := attach(t, c)
	for _, r := range []usernet.Reason{usernet.Reset, usernet.Prohibited, usernet.HostUnreachable, usernet.NetUnreachable, usernet.TimedOut} {
		done := dial(t.Context(), c)
		n.Send(netwire.Message{Kind: netwire.Refused, ID: (<-n.got).ID, Reason: netwire.Reason(r)})
		if d := <-done; refusedAs(d.err) != r {
			t.Errorf("dial: %v, want reason %d", d.err, r)
		}
	}
}

func TestACancelledDialClosesWhatComesLate(t *testing.T) {
	c := newClient(t)
	n := attach(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	done := dial(ctx, c)
	open := <-n.got
	cancel()
	if d := <-done; !errors.Is(d.err, context.Canceled) {
		t.Errorf("dial: %v", d.err)
	}
	if m := <-n.got; m.Kind != netwire.Cancel || m.ID != open.ID {
		t.Errorf("then came %+v, want its cancel", m)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	n.SendOpened(open.ID, r)
	r.Close()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := w.Write([]byte("x")); errors.Is(err, syscall.EPIPE) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the late descriptor is still open")
		}
	}
}

func TestAWireIsReplaced(t *testing.T) {
	c := newClient(t)
	n := attach(t, c)
	done := dial(t.Context(), c)
	<-n.got
	second := attach(t, c)
	if d := <-done; refusedAs(d.err) != usernet.Prohibited {
		t.Errorf("a dial on the old wire: %v, want prohibited", d.err)
	}
	done = dial(t.Context(), c)
	second.Send(netwire.Message{Kind: netwire.Refused, ID: (<-second.got).ID, Reason: netwire.Reset})
	if d := <-done; refusedAs(d.err) != usernet.Reset {
		t.Errorf("a dial on the new one: %v", d.err)
	}
}

func TestAWrongDescriptorIsNoFlow(t *testing.T) {
	c := newClient(t)
	n := attach(t, c)
	done := dial(t.Context(), c)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	n.SendOpened((<-n.got).ID, r)
	r.Close()
	w.Close()
	if d := <-done; d.err == nil {
		t.Error("a pipe is taken for a stream")
	}
}
