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

	"go.uber.org/goleak"

	"github.com/forkd/forkd/internal/net/upstream"
	"github.com/forkd/forkd/internal/net/upstream/proxytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// greeter is a server on at that sends a greeting first, and then echoes.
func greeter(t *testing.T, at string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Skipf("no %s here: %v", at, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello ")
			io.Copy(c, c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return netip.MustParseAddrPort(l.Addr().String())
}

func parse(t *testing.T, url string) *upstream.Proxy {
	t.Helper()
	p, err := upstream.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBytesGoThroughTheProxyBothWays(t *testing.T) {
	for name, login := range map[string][2]string{"open": {}, "with a password": {"me", "p%40ss"}} {
		for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
			t.Run(name+" "+at, func(t *testing.T) {
				far := greeter(t, at)
				s := proxytest.New(t, func(s *proxytest.Server) {
					s.User, s.Password = login[0], strings.ReplaceAll(login[1], "%40", "@")
				})
				p := parse(t, strings.ReplaceAll(s.URL(), "p@ss", "p%40ss"))
				c, err := p.Dial(t.Context(), upstream.Target{Addr: far})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				io.WriteString(c, "world")
				c.CloseWrite()
				if got, err := io.ReadAll(c); err != nil || string(got) != "hello world" {
					t.Errorf("read %q: %v", got, err)
				}
				if asked := s.Asked(); len(asked) != 1 || asked[0] != far {
					t.Errorf("it was asked for %v, want %v", asked, far)
				}
			})
		}
	}
}

func TestWhatProxiesRefuse(t *testing.T) {
	far := netip.MustParseAddrPort("203.0.113.7:443")
	for _, tc := range []struct {
		name string
		set  func(s *proxytest.Server)
		url  func(s *proxytest.Server) string
		why  upstream.Why
		text string
	}{
		{"it is down", (*proxytest.Server).Close, nil, upstream.Down, "connection refused"},
		{"a password is wanted", func(s *proxytest.Server) { s.User, s.Password = "me", "x" },
			func(s *proxytest.Server) string { return "socks5://" + s.Address() }, upstream.Unknown, "wants a user name"},
		{"another password", func(s *proxytest.Server) { s.User, s.Password = "me", "x" },
			func(s *proxytest.Server) string { return "socks5://me:y@" + s.Address() }, upstream.Unknown, "refused the user name"},
		{"a web server", func(s *proxytest.Server) { s.Greeting = "HTTP/1.1 400 Bad Request\r\n" }, nil,
			upstream.NoProxy, "no SOCKS5 proxy"},
		{"one that hangs up", func(s *proxytest.Server) { s.Greeting = "\x05" }, nil, upstream.Broken, "broke off"},
		{"general failure", reply(1), nil, upstream.Failed, "general failure"},
		{"its rules", reply(2), nil, upstream.Forbidden, "forbid"},
		{"no network", reply(3), nil, upstream.NetUnreach, "network unreachable"},
		{"no host", reply(4), nil, upstream.HostUnreach, "did not reach 203.0.113.7:443: host unreachable"},
		{"refused", reply(5), nil, upstream.Refused, "connection refused"},
		{"too far", reply(6), nil, upstream.Expired, "TTL"},
		{"no connections", reply(7), nil, upstream.Unsupported, "cannot connect"},
		{"another family", reply(8), nil, upstream.Unsupported, "family"},
		{"a reply of nobody", reply(99), nil, upstream.Failed, "reply 99"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := proxytest.New(t, tc.set)
			url := s.URL()
			if tc.url != nil {
				url = tc.url(s)
			}
			_, err := parse(t, url).Dial(t.Context(), upstream.Target{Addr: far})
			var e *upstream.Error
			if !errors.As(err, &e) || e.Why != tc.why || !strings.Contains(err.Error(), tc.text) ||
				!strings.Contains(err.Error(), s.Address()) {
				t.Errorf("got %v, want %q", err, tc.text)
			}
		})
	}
}

func reply(code byte) func(*proxytest.Server) { return func(s *proxytest.Server) { s.Reply = code } }

func TestWhoGivesUpDoesNotWaitForTheProxy(t *testing.T) {
	s := proxytest.New(t, func(s *proxytest.Server) { s.Silent = true })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := parse(t, s.URL()).Dial(ctx, upstream.Target{Addr: netip.MustParseAddrPort("203.0.113.7:443")})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"socks5://proxy.example":                  "proxy.example:1080",
		"socks5://10.0.0.1:3128/":                 "10.0.0.1:3128",
		"socks5://u:p@[::1]:1080":                 "[::1]:1080",
		"http://proxy":                            "",
		"socks5://":                               "",
		"socks5://proxy:0":                        "",
		"socks5://proxy:99999":                    "",
		"socks5://proxy/x":                        "",
		"socks5://geheim@proxy":                   "",
		"socks5://geheim:" + long + "@proxy":      "",
		"socks5://u:geheim@prox y":                "",
		"proxy:1080":                              "",
		"socks5h://geheim:geheim@proxy":           "",
		"socks5://geheim:geheim@proxy?x":          "",
		"socks5://:geheim@proxy":                  "",
		"socks5://geheim:geheim@proxy:port:port#": "",
	} {
		p, err := upstream.Parse(url)
		if want == "" && (err == nil || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%s: %v", url, err)
		}
		if want != "" && (err != nil || p.Address() != want || p.Secret() != strings.Contains(url, "@")) {
			t.Errorf("%s: %v, %+v", url, err, p)
		}
	}
}

var long = strings.Repeat("x", 256)
