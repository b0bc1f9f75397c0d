package netd_test

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/net/upstream"
	"github.com/forkd/forkd/internal/net/upstream/proxytest"
)

// proxied is a bench behind a proxy.
func proxied(t *testing.T, set ...func(*proxytest.Server)) (*bench, *proxytest.Server) {
	t.Helper()
	s := proxytest.New(t, set...)
	p, err := upstream.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return newBench(t, func(c *netd.Config) { c.Upstream = p }), s
}

func TestTCPGoesThroughTheUpstreamProxy(t *testing.T) {
	for name, handover := range map[string]bool{"handed over": true, "relayed": false} {
		t.Run(name, func(t *testing.T) {
			far := listen(t, echoTCP)
			b, s := proxied(t, func(s *proxytest.Server) { s.User, s.Password = "me", "secret" })
			c := b.bind("a", handover).openTCP(far)
			io.WriteString(c, "hello")
			c.(interface{ CloseWrite() error }).CloseWrite()
			if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
				t.Errorf("read %q: %v", got, err)
			}
			if asked := s.Asked(); len(asked) != 1 || asked[0] != far {
				t.Errorf("it was asked for %v", asked)
			}
			hangUp(c)
			eventually(t, "the end of the flow", func() bool { return b.s.Stats().Flows == 0 })
		})
	}
}

func TestAFlowWithANameGoesThroughTheUpstreamProxyByItsJudgedAddress(t *testing.T) {
	far := listen(t, echoTCP)
	b, s := proxied(t)
	b.rules.names = map[string][]netip.Addr{"a.example": {far.Addr()}}
	b.rules.set(func(q netd.Question) netd.Verdict {
		if q.Name == "" {
			return netd.Verdict{Outcome: netd.NeedName}
		}
		return netd.Verdict{Outcome: netd.Allow, Name: q.Name}
	})
	asked := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), far.Port())
	c := b.bind("a", false).openTCP(asked)
	request := "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
	io.WriteString(c, request)
	got := make([]byte, len(request))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != request {
		t.Fatalf("read %q: %v", got, err)
	}
	if all := s.Asked(); len(all) != 1 || all[0] != far {
		t.Errorf("the proxy was asked for %v, want %v", all, far)
	}
}

func TestTheFloorHoldsForWhatTheUpstreamProxyIsAsked(t *testing.T) {
	b, s := proxied(t)
	g := b.bind("a", false)
	calls := 0
	b.rules.set(func(q netd.Question) netd.Verdict { // as if its address had meanwhile become the host's
		if calls++; calls > 1 {
			return netd.Verdict{Text: "private"}
		}
		return allowAll(q)
	})
	if m, f := g.ask(netwire.TCP, netip.MustParseAddrPort("10.0.0.1:80")); f != nil || m.Reason != netwire.Prohibited {
		t.Errorf("answered %+v", m)
	}
	// It does not open the proxy's own address to guests either.
	b.rules.set(func(netd.Question) netd.Verdict { return netd.Verdict{Text: "private"} })
	if m, f := g.ask(netwire.TCP, netip.MustParseAddrPort(s.Address())); f != nil || m.Reason != netwire.Prohibited {
		t.Errorf("the proxy itself is answered %+v", m)
	}
	if asked := s.Asked(); len(asked) != 0 {
		t.Errorf("it was asked for %v", asked)
	}
}

func TestThePortsOfTheHostAreNotTheUpstreamProxys(t *testing.T) {
	far := listen(t, echoTCP)
	b, s := proxied(t)
	b.rules.set(func(netd.Question) netd.Verdict { return netd.Verdict{Outcome: netd.Allow, Dial: far} })
	c := b.bind("a", false).openTCP(netip.MustParseAddrPort("192.0.2.1:80"))
	io.WriteString(c, "x")
	if _, err := c.Read(make([]byte, 1)); err != nil || len(s.Asked()) != 0 {
		t.Errorf("%v; the proxy was asked for %v", err, s.Asked())
	}
}

func TestWhatAnUpstreamProxyCannotTakeIsRefused(t *testing.T) {
	b, s := proxied(t)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	g := b.bind("a", false)
	for p, far := range map[netwire.Protocol]string{netwire.UDP: udp.LocalAddr().String(), netwire.Echo: "127.0.0.1:0"} {
		if m, f := g.ask(p, netip.MustParseAddrPort(far)); f != nil || m.Reason != netwire.Prohibited {
			t.Errorf("%s is answered %+v", far, m)
		}
	}
	dns := g.open(netwire.UDP, netip.MustParseAddrPort("192.0.0.1:53"))
	dns.Write([]byte("\x00query"))
	answer := make([]byte, 64)
	if n, err := dns.Read(answer); err != nil || string(answer[1:n]) != "answer to query" {
		t.Errorf("the name server says %q: %v", answer[:n], err)
	}
	b.s.Close()
	for _, l := range b.lines() {
		if l.Verdict != control.Refused || !strings.Contains(l.Reason, "cannot pass the upstream proxy") ||
			strings.Contains(l.Reason, s.Address()) {
			t.Errorf("audit %+v", l)
		}
	}
}

func TestFailuresOfTheUpstreamProxyLookLikeThoseOfANetwork(t *testing.T) {
	reply := func(code byte) func(*proxytest.Server) { return func(s *proxytest.Server) { s.Reply = code } }
	const four, six = "203.0.113.7:443", "[2001:db8::7]:443"
	for _, tc := range []struct {
		name, far string
		set       func(*proxytest.Server)
		want      netwire.Reason
		text      string
	}{
		{"it is down", four, (*proxytest.Server).Close, netwire.NetUnreachable, "does not answer"},
		{"it is down, by IPv6", six, (*proxytest.Server).Close, netwire.Reset, "does not answer"},
		{"another password", four, func(s *proxytest.Server) {
			s.User, s.Password, s.Shown = "me", "x", "me:geheim"
		}, netwire.NetUnreachable, "refused the user name and the password"},
		{"its rules", four, reply(2), netwire.Prohibited, "its rules forbid it"},
		{"no network", four, reply(3), netwire.NetUnreachable, "network unreachable"},
		{"no host", four, reply(4), netwire.HostUnreachable, "did not reach 203.0.113.7:443: host unreachable"},
		{"refused", four, reply(5), netwire.Reset, "connection refused"},
		{"no IPv6", six, reply(8), netwire.Reset, "this family"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, s := proxied(t, tc.set)
			if m, f := b.bind("a", false).ask(netwire.TCP, netip.MustParseAddrPort(tc.far)); f != nil || m.Reason != tc.want {
				t.Errorf("answered %+v, want reason %v", m, tc.want)
			}
			b.s.Close()
			all := b.lines()
			if len(all) != 1 || all[0].Verdict != control.Refused || !strings.Contains(all[0].Detail, tc.text) ||
				!strings.Contains(all[0].Detail, "upstream proxy "+s.Address()) || strings.Contains(all[0].Detail, "geheim") ||
				!strings.Contains(all[0].Reason, "upstream proxy") || strings.Contains(all[0].Reason, s.Address()) {
				t.Errorf("audit %+v", all)
			}
		})
	}
}
