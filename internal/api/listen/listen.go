// Package listen binds the addresses of the daemon and serves HTTP on them. It limits the connections that wait, and
// rewrites the answers net/http sends before any handler into the API's form. The trap: TLS ends below the limiter.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/domain/keys"
)

// Timeouts of the HTTP servers. There is no timeout for a whole body or answer, because uploads and
// streams may be long. Package iodeadline limits the time for each piece.
const (
	// HeaderTimeout is the time for a request's header to arrive.
	HeaderTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// Listener is a bound address with its access rules.
type Listener struct {
	net.Listener
	URL    string      // as given, with the chosen port
	Access auth.Access // decides which clients it admits
	TLS    bool        // connections are encrypted
	// Around wraps the handler of its requests. May be nil.
	Around func(http.Handler) http.Handler
}

// Binding holds the settings for binding addresses.
type Binding struct {
	// Group is the group whose members may use Unix sockets as the operator. nil: none.
	Group *uint32
	Token string      // admits clients that show it
	Keys  *keys.Store // admit clients that show one; nil: there are no keys
	TLS   *tls.Config // for TCP addresses; nil: plain HTTP
	// Plain allows plain HTTP beyond loopback. Attackers on the network path can then read tokens,
	// and change requests and answers.
	Plain bool
}

// ErrPlain refuses an address at which attackers on the network path could read the traffic.
var ErrPlain = errors.New("plain HTTP beyond this host would expose tokens on the network")

// Listen binds an address of this host, tcp://HOST:PORT or unix:///PATH, for plain HTTP.
func Listen(ctx context.Context, address, token string) (Listener, error) {
	return Binding{Token: token}.Listen(ctx, address)
}

// Listen binds an address, tcp://HOST:PORT or unix:///PATH. TCP requires a token, even on loopback,
// because every user of the host can connect to it.
func (b Binding) Listen(ctx context.Context, address string) (Listener, error) {
	u, err := url.Parse(address)
	if err != nil {
		return Listener{}, fmt.Errorf("listen on %q: want tcp://HOST:PORT or unix:///PATH", address)
	}
	switch {
	case u.Scheme == "unix" && u.Path != "" && u.Host == "":
		l, err := listenUnix(ctx, u.Path, b.Group)
		return Listener{Listener: l, URL: address, Access: b.local()}, err
	case u.Scheme == "tcp" && u.Host != "" && u.Path == "":
		return b.listenTCP(ctx, u.Host)
	}
	return Listener{}, fmt.Errorf("listen on %q: want tcp://HOST:PORT or unix:///PATH", address)
}

// local returns the access to Unix sockets.
func (b Binding) local() auth.Access {
	return auth.Access{Token: b.Token, Local: true, Keys: b.Keys, Group: b.Group}
}

// Adopt returns a listener for a socket that a service manager has bound. The rules are those of
// Listen.
func (b Binding) Adopt(l net.Listener) (Listener, error) {
	switch at := l.Addr().(type) {
	case *net.UnixAddr:
		return Listener{Listener: l, URL: "unix://" + at.Name, Access: b.local()}, nil
	case *net.TCPAddr:
		if err := b.checkTCP(at.String()); err != nil {
			return Listener{}, err
		}
		return b.overTCP(l), nil
	}
	return Listener{}, fmt.Errorf("listen on %s: want a TCP address or a Unix socket", l.Addr())
}

func (b Binding) listenTCP(ctx context.Context, hostport string) (Listener, error) {
	if err := b.checkTCP(hostport); err != nil {
		return Listener{}, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", hostport)
	if err != nil {
		return Listener{}, fmt.Errorf("listen: %w", err)
	}
	return b.overTCP(l), nil
}

// checkTCP checks whether the daemon may serve an address.
func (b Binding) checkTCP(hostport string) error {
	host, _, err := net.SplitHostPort(hostport)
	switch {
	case err != nil:
		return fmt.Errorf("listen on tcp://%s: %w", hostport, err)
	case b.Token == "":
		return fmt.Errorf("listen on tcp://%s: refused without a token, because other users can connect to it", hostport)
	case b.TLS == nil && !b.Plain && !loopback(host):
		return fmt.Errorf("listen on tcp://%s: %w", hostport, ErrPlain)
	}
	return nil
}

func (b Binding) overTCP(l net.Listener) Listener {
	scheme := "tcp://"
	if b.TLS != nil {
		// Below the limiter, so that the limiter's own answers are encrypted too. A client that does
		// not complete the handshake counts as one that sends no header.
		l, scheme = tls.NewListener(l, b.TLS), "https://"
	}
	return Listener{Listener: l, URL: scheme + l.Addr().String(), TLS: b.TLS != nil,
		Access: auth.Access{Token: b.Token, Keys: b.Keys, Encrypted: b.TLS != nil}}
}

// loopback reports whether an address is reachable from this host only. Of all names it accepts
// only localhost, because the addresses of other names may change.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// listenUnix binds a socket only this user, and the members of the group, may connect to. An
// administrator may change its mode; other users then need the token. listenUnix replaces a socket
// without a server, but not a socket in use.
func listenUnix(ctx context.Context, path string, group *uint32) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of socket: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen on unix://%s: another daemon serves it", path)
	} else if errors.Is(err, unix.ECONNREFUSED) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove dead socket: %w", err)
		}
	}
	// The mode must be right from the start. Other files created under this umask only get a
	// stricter mode.
	old := unix.Umask(0o177)
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if group == nil {
		return l, nil
	}
	if err = os.Lchown(path, -1, int(*group)); err == nil {
		err = os.Chmod(path, 0o660) // #nosec G302 -- the operator named the group
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on unix://%s: %w", path, err), l.Close())
	}
	return l, nil
}
