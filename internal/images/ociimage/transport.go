package ociimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	errRedirect = errors.New("redirect refused")
	errAddress  = errors.New("address refused")
	errStalled  = errors.New("no data for a minute")
)

const (
	maxRedirects = 5
	stallTime    = time.Minute
	idleConns    = 16 // of parallel requests for ranges
)

// checkRedirect refuses many redirects, and those from an encrypted to a plain connection.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: more than %d redirects", errRedirect, maxRedirects)
	}
	if req.URL.Scheme != "https" && via[0].URL.Scheme == "https" {
		return fmt.Errorf("%w: from https to %s://%s", errRedirect, req.URL.Scheme, req.URL.Host)
	}
	return nil
}

// guard refuses connections to private addresses that a public registry redirects to: services of this network
// trust their callers. A private registry may use other private servers.
type guard struct {
	host    string // of the registry
	private atomic.Bool
	dialer  net.Dialer
}

// Transport returns a transport for requests to a host of a registry, with the proxies and limits of pulls.
func Transport(host string) *http.Transport { return newTransport(host) }

func newTransport(registry string) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = 30 * time.Second
	t.MaxResponseHeaderBytes = 256 << 10
	t.MaxIdleConnsPerHost = idleConns
	if proxied() {
		return t // the proxy connects
	}
	g := &guard{host: (&url.URL{Host: registry}).Hostname()}
	g.dialer = net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	t.DialContext = g.dial
	return t
}

func proxied() bool {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := g.dialer
	if host != g.host && !g.private.Load() {
		d.Control = func(_, resolved string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(resolved)
			if err != nil || !public(at.Addr()) {
				return fmt.Errorf("%w: the registry leads to %s at the private address %s", errAddress, host, resolved)
			}
			return nil
		}
	}
	conn, err := d.DialContext(ctx, network, address)
	if err == nil && host == g.host {
		if at, ok := conn.RemoteAddr().(*net.TCPAddr); ok && !public(at.AddrPort().Addr()) {
			g.private.Store(true)
		}
	}
	return conn, err
}

// shared is the range of carriers' networks (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() && !shared.Contains(a)
}

// stall cancels a context when a body sends no data for a while.
type stall struct {
	timer *time.Timer
	stop  func()
}

func withStall(parent context.Context) (context.Context, *stall) {
	ctx, cancel := context.WithCancelCause(parent)
	t := time.AfterFunc(stallTime, func() { cancel(errStalled) })
	return ctx, &stall{t, func() { t.Stop(); cancel(nil) }}
}

func (s *stall) reader(r io.Reader) io.Reader { return stallReader{s, r} }

type stallReader struct {
	s *stall
	r io.Reader
}

func (r stallReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.s.timer.Reset(stallTime)
	return n, err
}
