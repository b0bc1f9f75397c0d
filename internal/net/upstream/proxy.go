package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/leaf/proxyurl"
)

// Proxy is a proxy to dial through.
type Proxy struct {
	url proxyurl.URL
	// Dialer connects to the proxy itself.
	Dialer net.Dialer
}

// Target is a destination. The proxy gets the name if there is one, and otherwise the address.
type Target struct {
	Addr netip.AddrPort
	Name string
}

func (t Target) String() string {
	if t.Name != "" {
		return net.JoinHostPort(t.Name, strconv.Itoa(int(t.Addr.Port())))
	}
	return t.Addr.String()
}

// New returns the client of a proxy.
func New(u proxyurl.URL) *Proxy { return &Proxy{url: u} }

// Parse returns the client of the proxy with a URL.
func Parse(text string) (*Proxy, error) {
	u, err := proxyurl.Parse(text)
	if err != nil {
		return nil, err
	}
	return New(u), nil
}

// Address returns the proxy's host and port, without secrets.
func (p *Proxy) Address() string { return p.url.Address() }

// Secret reports whether the proxy's URL contains a password.
func (p *Proxy) Secret() bool { return p.url.User != "" }

// Dial connects to a target through the proxy. It returns an *Error, or the error of ctx.
func (p *Proxy) Dial(ctx context.Context, to Target) (*net.TCPConn, error) {
	c, err := p.Dialer.DialContext(ctx, "tcp", p.url.Address())
	if err != nil {
		return nil, p.Unreachable(ctx, err)
	}
	return p.Through(ctx, c.(*net.TCPConn), to)
}

// Unreachable returns the error for a failed connection to the proxy itself.
func (p *Proxy) Unreachable(ctx context.Context, err error) error {
	return p.failed(ctx, Down, "does not answer: "+err.Error(), err)
}

// Through connects to a target through a connection to the proxy, which it owns. It returns the same connection, an
// *Error, or the error of ctx.
func (p *Proxy) Through(ctx context.Context, far *net.TCPConn, to Target) (*net.TCPConn, error) {
	stop := context.AfterFunc(ctx, func() { far.SetDeadline(time.Unix(1, 0)) })
	ask := p.ask
	if p.url.Scheme == proxyurl.HTTP {
		ask = p.connect
	}
	err := ask(far, to)
	if !stop() && err == nil { // its deadline has passed
		err = context.Cause(ctx)
	}
	if err == nil {
		return far, nil
	}
	far.Close()
	var told *Error
	if errors.As(err, &told) && ctx.Err() == nil {
		return nil, told
	}
	return nil, p.failed(ctx, Broken, "broke off its handshake: "+err.Error(), err)
}

// failed returns the error for a failure of the proxy itself, or the cause of ctx if the caller
// gave up.
func (p *Proxy) failed(ctx context.Context, why Why, text string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("upstream proxy %s: %w", p.url.Address(), context.Cause(ctx))
	}
	return &Error{Why: why, Proxy: p.url.Address(), Text: text, Err: err}
}
