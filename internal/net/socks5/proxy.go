package socks5

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// defaultPort is the port of a proxy without a port in its URL.
const defaultPort = "1080"

// maxSecret limits user name and password each: RFC 1929 has one byte for the length.
const maxSecret = 255

// Proxy is a proxy to dial through.
type Proxy struct {
	address        string // host:port
	user, password string // both empty if there is no authentication
	// Dialer connects to the proxy itself.
	Dialer net.Dialer
}

// errURL describes the correct form. It never quotes the input, because that may contain a
// password.
var errURL = errors.New("want socks5://[USER:PASSWORD@]HOST[:PORT]")

// Parse reads a proxy's URL: socks5://[user:password@]host[:port].
func Parse(text string) (*Proxy, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "socks5" || u.Hostname() == "" || u.Path != "" && u.Path != "/" ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, errURL
	}
	port := cmp.Or(u.Port(), defaultPort)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, errURL
	}
	p := &Proxy{address: net.JoinHostPort(u.Hostname(), port)}
	if u.User == nil {
		return p, nil
	}
	p.user = u.User.Username()
	p.password, _ = u.User.Password()
	if p.user == "" || p.password == "" || len(p.user) > maxSecret || len(p.password) > maxSecret {
		return nil, fmt.Errorf("a user name and a password have 1 to %d bytes each: %w", maxSecret, errURL)
	}
	return p, nil
}

// Address returns the proxy's host and port, without secrets.
func (p *Proxy) Address() string { return p.address }

// Secret reports whether the proxy's URL contains a password.
func (p *Proxy) Secret() bool { return p.user != "" }

// Dial connects to an address through the proxy. It returns an *Error, or the error of ctx.
func (p *Proxy) Dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	c, err := p.Dialer.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, p.failed(ctx, Down, "does not answer: "+err.Error(), err)
	}
	far := c.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { far.SetDeadline(time.Unix(1, 0)) })
	err = p.ask(far, to)
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
		return fmt.Errorf("upstream proxy %s: %w", p.address, context.Cause(ctx))
	}
	return &Error{Why: why, Proxy: p.address, Text: text, Err: err}
}
