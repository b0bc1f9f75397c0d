package upstream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/upstream"
	"github.com/forkd/forkd/internal/net/upstream/proxytest"
)

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The far end speaks first: no byte of it may be taken for the proxy's answer.
func TestBytesGoThroughAnHTTPProxyBothWays(t *testing.T) {
	far := greeter(t, "127.0.0.1:0")
	for _, target := range []upstream.Target{{Addr: far}, {Addr: far, Name: "greeter.example"}} {
		s := proxytest.HTTP(t, listener(t), 0, func(s *proxytest.Server) {
			s.User, s.Password = "me", "p:ss"
			s.Hosts = map[string]netip.Addr{"greeter.example": far.Addr()}
		})
		p := parse(t, "http://me:p%3Ass@"+s.Address())
		c, err := p.Dial(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "world")
		c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != "hello world" {
			t.Errorf("read %q: %v", got, err)
		}
		c.Close()
		if got := len(s.Asked()) == 1; got != (target.Name == "") || len(s.Names()) != 1 && target.Name != "" {
			t.Errorf("it was asked for %v and %v", s.Asked(), s.Names())
		}
	}
}

func TestASOCKSProxyResolvesANameIfAsked(t *testing.T) {
	far := greeter(t, "127.0.0.1:0")
	s := proxytest.New(t, func(s *proxytest.Server) { s.Hosts = map[string]netip.Addr{"greeter.example": far.Addr()} })
	c, err := parse(t, s.URL()).Dial(t.Context(), upstream.Target{Addr: netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"),
		far.Port()), Name: "greeter.example"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := make([]byte, 6); len(s.Asked()) != 0 {
		t.Errorf("it was asked for %v", s.Asked())
	} else if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello " {
		t.Errorf("read %q: %v", got, err)
	}
}

func TestWhatHTTPProxiesRefuse(t *testing.T) {
	far := upstream.Target{Addr: netip.MustParseAddrPort("203.0.113.7:443")}
	fail := func(name string, s *proxytest.Server, user string, why upstream.Why, text string) {
		t.Helper()
		p := parse(t, "http://"+user+s.Address())
		_, err := p.Dial(t.Context(), far)
		var e *upstream.Error
		if !errors.As(err, &e) || e.Why != why || !strings.Contains(e.Text, text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	login := func(s *proxytest.Server) { s.User, s.Password = "me", "y" }
	fail("no password", proxytest.HTTP(t, listener(t), 0, login), "", upstream.Unknown, "wants a user name")
	fail("another password", proxytest.HTTP(t, listener(t), 0, login), "me:x@", upstream.Unknown, "refused the user name")
	for status, why := range map[int]upstream.Why{403: upstream.Forbidden, 405: upstream.Unsupported, 502: upstream.HostUnreach,
		504: upstream.Expired, 500: upstream.Failed, 301: upstream.Failed, 418: upstream.Failed} {
		fail("a status", proxytest.HTTP(t, listener(t), status), "", why, "did not reach 203.0.113.7:443")
	}
	for greeting, why := range map[string]upstream.Why{
		"SSH-2.0-x\r\n\r\n": upstream.NoProxy, "HTTP/2.0 200\r\n\r\n": upstream.NoProxy, "HTTP/1.1 20\r\n\r\n": upstream.NoProxy,
		"HTTP/1.1 \r\n\r\n": upstream.NoProxy, "\n\n": upstream.NoProxy, "HTTP/1.1 200 OK\r\n": upstream.Broken, "": upstream.Broken,
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 9000) + "\r\n\r\n": upstream.Broken,
		"HTTP/1.1 -20 OK\r\n\r\n": upstream.NoProxy,
	} {
		l := listener(t)
		go func() {
			if c, err := l.Accept(); err == nil {
				io.WriteString(c, greeting)
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
				c.Close()
			}
		}()
		_, err := parse(t, "http://"+l.Addr().String()).Dial(t.Context(), far)
		var e *upstream.Error
		if !errors.As(err, &e) || e.Why != why {
			t.Errorf("%.40q: %v", greeting, err)
		}
		l.Close()
	}
}

func TestAnHTTPProxyThatDoesNotAnswer(t *testing.T) {
	l := listener(t)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := parse(t, "http://"+l.Addr().String()).Dial(ctx, upstream.Target{Addr: netip.MustParseAddrPort("203.0.113.7:443")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\nbytes"))
	f.Add([]byte("HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		l := listener(t)
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				c.Write(answer)
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
				c.Close()
			}
		}()
		c, err := parse(t, "http://"+l.Addr().String()).Dial(t.Context(), upstream.Target{Addr: netip.MustParseAddrPort("203.0.113.7:443")})
		if err != nil {
			var e *upstream.Error
			if !errors.As(err, &e) {
				t.Errorf("%v", err)
			}
			return
		}
		defer c.Close()
		rest, _ := io.ReadAll(c) // the tunnel begins after the first empty line
		head := answer[:len(answer)-len(rest)]
		if !strings.HasPrefix(string(head), "HTTP/1.") || !strings.HasSuffix(string(head), "\n") {
			t.Errorf("the answer is %q, the tunnel %q", head, rest)
		}
	})
}
