package usernet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen starts a TCP server that passes each connection to serve.
func listen(t testing.TB, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.TCPConn))
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

// echoServer returns the received bytes and their end.
func echoServer(c *net.TCPConn) {
	defer c.Close()
	io.Copy(c, c)
}

func (g *guest) dial(t testing.TB, to netip.AddrPort) *gonet.TCPConn {
	t.Helper()
	c, err := g.tryDial(to)
	if err != nil {
		t.Fatalf("connect to %s: %v", to, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (g *guest) tryDial(to netip.AddrPort) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return gonet.DialContextTCP(ctx, g.Stack, fullAddress(to), networkOf(to.Addr()))
}

func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: toStack(a.Addr()), Port: a.Port()}
}

func TestBytesArriveBothWays(t *testing.T) {
	for _, c := range []struct {
		name string
		guestConfig
		to   netip.AddrPort
		size int
	}{
		{"IPv4 with offload", guestConfig{}, far, 32 << 20},
		{"IPv6 with offload", guestConfig{}, far6, 32 << 20},
		{"no offload", guestConfig{plain: true}, far, 8 << 20},
		{"IPv6, no offload", guestConfig{plain: true}, far6, 8 << 20},
		{"a short ring", guestConfig{ring: 2}, far, 8 << 20},
		{"loss and reordering", guestConfig{loss: 0.01, plain: true}, far, 2 << 20},
		{"loss and reordering with offload", guestConfig{loss: 0.005}, far, 2 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.Dialer = &hostDialer{tcp: listen(t, echoServer)}
			g := newGuest(t, c.guestConfig)
			conn := g.dial(t, c.to)
			sent := sha256.New()
			wrote := make(chan error, 1)
			go func() {
				rnd := rand.NewChaCha8([32]byte{1})
				_, err := io.Copy(io.MultiWriter(conn, sent), io.LimitReader(rnd, int64(c.size)))
				wrote <- errors.Join(err, conn.CloseWrite())
			}()
			got := sha256.New()
			n, err := io.Copy(got, conn)
			if err := errors.Join(err, <-wrote); err != nil || n != int64(c.size) {
				t.Fatalf("%d bytes came back, want %d: %v; %+v", n, c.size, err, g.engine.Stats())
			}
			if !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
				t.Error("what came back is not what was sent")
			}
			conn.Close()
			eventually(t, "the flow ends", func() bool { return g.engine.Stats().Flows == 0 })
		})
	}
}

func TestTheFarEndsAnswerIsTheGuests(t *testing.T) {
	for _, c := range []struct {
		reason Reason
		want   string
	}{
		{Reset, "connection was refused"}, {Prohibited, "connection was refused"},
		{HostUnreachable, "no route to host"}, {NetUnreachable, "network is unreachable"},
	} {
		for _, to := range []netip.AddrPort{far, far6} {
			if to == far6 && c.reason == HostUnreachable {
				continue // gVisor as a guest does not know ICMPv6's address unreachable; Linux does
			}
			t.Run(fmt.Sprint(c.want, to.Addr()), func(t *testing.T) {
				g := newGuest(t, guestConfig{Config: Config{Dialer: &hostDialer{
					tcpDo: func(context.Context, Flow) error { return &Refusal{c.reason} },
				}}})
				_, err := g.tryDial(to)
				if err == nil || !bytes.Contains([]byte(err.Error()), []byte(c.want)) {
					t.Errorf("connect: %v, want %q", err, c.want)
				}
				if s := g.engine.Stats(); s.Refused == 0 || s.Opened != 0 {
					t.Errorf("stats are %+v", s)
				}
			})
		}
	}
}

func TestTheGuestIsAnsweredAfterTheFarEnd(t *testing.T) {
	open := make(chan struct{})
	d := &hostDialer{tcp: listen(t, echoServer), tcpDo: func(ctx context.Context, _ Flow) error {
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	g := newGuest(t, guestConfig{Config: Config{Dialer: d}})
	done := make(chan error, 1)
	go func() {
		c, err := g.tryDial(far)
		if err == nil {
			c.Close()
		}
		done <- err
	}()
	eventually(t, "a dial is under way", func() bool { return g.engine.Stats().Dials == 1 })
	select {
	case err := <-done:
		t.Fatalf("the guest was answered before the far end: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if f := d.seen(); len(f) != 1 || f[0].Protocol != TCP || f[0].Far != far || f[0].Guest.Addr() != guest4 {
		t.Errorf("flows are %+v", f)
	}
}

func TestResetsGoThrough(t *testing.T) {
	t.Run("from the far end", func(t *testing.T) {
		g := newGuest(t, guestConfig{Config: Config{Dialer: &hostDialer{tcp: listen(t, func(c *net.TCPConn) {
			io.ReadFull(c, make([]byte, 1))
			c.SetLinger(0)
			c.Close()
		})}}})
		c := g.dial(t, far)
		c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("read: %v, want a reset", err)
		}
		eventually(t, "the flow ends", func() bool { return g.engine.Stats().Flows == 0 })
	})
	t.Run("from the guest", func(t *testing.T) {
		got := make(chan error, 1)
		g := newGuest(t, guestConfig{Config: Config{Dialer: &hostDialer{tcp: listen(t, func(c *net.TCPConn) {
			defer c.Close()
			_, err := io.Copy(io.Discard, c)
			got <- err
		})}}})
		c := g.dial(t, far)
		c.Write([]byte("x"))
		for _, ep := range g.Stack.RegisteredEndpoints() {
			ep.Abort()
		}
		if err := <-got; err == nil {
			t.Error("the far end saw an orderly end, want a reset")
		}
		eventually(t, "the flow ends", func() bool { return g.engine.Stats().Flows == 0 })
	})
}

func TestAHalfClosedFlowCarriesTheOtherWay(t *testing.T) {
	g := newGuest(t, guestConfig{Config: Config{Dialer: &hostDialer{tcp: listen(t, func(c *net.TCPConn) {
		defer c.Close()
		c.CloseWrite()
		b, _ := io.ReadAll(c)
		if string(b) != "after the end" {
			t.Errorf("the far end got %q", b)
		}
	})}}})
	c := g.dial(t, far)
	if b, err := io.ReadAll(c); len(b) != 0 || err != nil {
		t.Fatalf("read %q, %v", b, err)
	}
	if _, err := c.Write([]byte("after the end")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	eventually(t, "the flow ends", func() bool { return g.engine.Stats().Flows == 0 })
}

// udpEcho starts a UDP server that returns datagrams.
func udpEcho(t testing.TB) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 65536)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			c.WriteTo(buf[:n], from)
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-done
	})
	return c.LocalAddr().String()
}

func TestDatagramsComeBackWhole(t *testing.T) {
	for _, to := range []netip.AddrPort{far, far6} {
		for _, size := range []int{0, 1, 512, 1472, 1473, 9000, 60000} {
			t.Run(fmt.Sprintf("%s, %d bytes", to.Addr(), size), func(t *testing.T) {
				g := newGuest(t, guestConfig{plain: true, Config: Config{Dialer: &hostDialer{udp: udpEcho(t)}}})
				c := g.udp(t, to)
				want := bytes.Repeat([]byte{0xa5}, size)
				if _, err := c.Write(want); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, 65536)
				c.SetReadDeadline(time.Now().Add(5 * time.Second))
				if n, err := c.Read(got); err != nil || !bytes.Equal(got[:n], want) {
					t.Errorf("%d bytes came back, want %d: %v; %+v", n, size, err, g.engine.Stats())
				}
			})
		}
	}
}

func (g *guest) udp(t testing.TB, to netip.AddrPort) *gonet.UDPConn {
	t.Helper()
	addr := fullAddress(to)
	c, err := gonet.DialUDP(g.Stack, nil, &addr, networkOf(to.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestARefusedDatagramIsAnswered(t *testing.T) {
	for _, r := range []Reason{Reset, Prohibited, HostUnreachable, NetUnreachable} {
		for _, to := range []netip.AddrPort{far, far6} {
			t.Run(fmt.Sprint(r, to.Addr()), func(t *testing.T) {
				g := newGuest(t, guestConfig{Config: Config{Dialer: &hostDialer{
					tcpDo: func(context.Context, Flow) error { return &Refusal{r} },
				}}})
				c := g.udp(t, to)
				if _, err := c.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				v4, v6 := g.Stats().ICMP.V4.PacketsReceived.DstUnreachable, g.Stats().ICMP.V6.PacketsReceived.DstUnreachable
				eventually(t, "an ICMP error comes", func() bool { return v4.Value()+v6.Value() > 0 })
				eventually(t, "the flow ends", func() bool { return g.engine.Stats().Flows == 0 })
			})
		}
	}
}

func TestFlowsOfDatagramsEndWhenIdle(t *testing.T) {
	g := newGuest(t, guestConfig{Config: Config{
		Dialer: &hostDialer{udp: udpEcho(t)}, Limits: Limits{UDPIdle: 50 * time.Millisecond},
	}})
	c := g.udp(t, far)
	for range 3 {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the flow ends", func() bool { return g.engine.Stats().Flows == 0 })
	}
}

func TestAnAnsweredQuestionKeepsNoFlow(t *testing.T) {
	g := newGuest(t, guestConfig{Config: Config{
		Dialer: &hostDialer{udp: udpEcho(t)}, Limits: Limits{DNSIdle: time.Hour},
	}})
	c := g.udp(t, netip.AddrPortFrom(guestnet.Gateway4, portDNS))
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the flow ends", func() bool { return g.engine.Stats().Flows == 0 })
}

func TestEchoRequests(t *testing.T) {
	for name, to := range map[string]netip.Addr{
		"the gateway": guestnet.Gateway4, "the gateway, IPv6": guestnet.GatewayUniqueLocal, "the gateway, link-local": guestnet.Gateway6,
		"another host": far.Addr(), "another host, IPv6": far6.Addr(),
	} {
		t.Run(name, func(t *testing.T) {
			d := &hostDialer{}
			w := newWire(t, Config{Dialer: d})
			src := guest4
			if to.Is6() {
				src = guest6
			}
			w.send(echoRequest(src, to, 7, 1))
			reply := w.next(t)
			p := reply.parse(t)
			kind := byte(header.ICMPv4EchoReply)
			if to.Is6() {
				kind = byte(header.ICMPv6EchoReply)
			}
			if p.src != to || p.dst != src || p.segment.bytes[0] != kind || p.segment.bytes[5] != 7 {
				t.Errorf("answer is % x", p.bytes)
			}
			if want := !isGateway(to); (len(d.seen()) == 1) != want {
				t.Errorf("flows are %+v", d.seen())
			}
		})
	}
}
