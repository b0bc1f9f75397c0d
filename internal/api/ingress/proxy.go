package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/guest/agentproto/guard"
)

func (h *Handler) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     guard.Transport{Next: roundTripper{h}},
		FlushInterval: -1, // flush streams immediately
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del(HeaderError) // only the daemon sets these
			resp.Header.Del(headerMovedTo)
			return nil
		},
		ErrorLog: slog.NewLogLogger(h.cfg.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			to := targetOf(r.Context())
			if silent := iodeadline.Silence(r.Context()); silent != nil {
				refuse(w, r, to, silent)
				return
			}
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the client has disconnected
			}
			var undialled dialError
			if h.cfg.Ended != nil && !errors.As(err, &undialled) && !replaced(err) {
				switch why := h.cfg.Ended(to.Sandbox); {
				case replaced(why):
					err = why
				case why != nil:
					err = endedError{why}
				}
			}
			refuse(w, r, to, err)
		},
	}
}

// rewrite keeps the client's Host and path.
func rewrite(p *httputil.ProxyRequest) {
	to := targetOf(p.In.Context())
	p.Out.URL.Scheme = "http"
	if to.TLS {
		p.Out.URL.Scheme = "https"
	}
	p.Out.URL.Host = net.JoinHostPort(to.Sandbox, strconv.Itoa(int(to.Port)))
	p.Out.Host, p.Out.URL.RawQuery = p.In.Host, p.In.URL.RawQuery
	for _, name := range []string{HeaderSandbox, HeaderPort, "Forkd-Access-Token", headerTraffic} {
		p.Out.Header.Del(name)
	}
	forwarded(p)
}

// forwarded adds the client's address and scheme. It trusts these headers only from a proxy on this
// host, for example one that ends TLS. Other clients could forge them.
func forwarded(p *httputil.ProxyRequest) {
	near := fromThisHost(p.In.RemoteAddr)
	if near {
		p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	}
	p.SetXForwarded()
	if !near {
		return
	}
	for _, name := range []string{"X-Forwarded-Proto", "X-Forwarded-Host"} {
		if said := p.In.Header.Get(name); said != "" {
			p.Out.Header.Set(name, said)
		}
	}
}

// fromThisHost reports whether the remote address is loopback, or empty for a Unix socket.
func fromThisHost(remote string) bool {
	a, err := netip.ParseAddrPort(remote)
	return err != nil || a.Addr().Unmap().IsLoopback()
}

// roundTripper chooses the protocol to the guest.
type roundTripper struct{ h *Handler }

// RoundTrip repeats a read-only request if a pause of its sandbox cut it off and the sandbox
// resumes.
func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.once(r)
	var undialled dialError
	if err == nil || t.h.cfg.Wake == nil || !replayable(r) || errors.As(err, &undialled) {
		return resp, err
	}
	woken, wakeErr := t.h.cfg.Wake(r.Context(), r.URL.Hostname(), err)
	if wakeErr != nil || !woken {
		return nil, err
	}
	return t.once(r)
}

// replayable reports whether a request may be sent twice.
func replayable(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.Body == nil || r.Body == http.NoBody) &&
		r.Header.Get("Upgrade") == "" && r.Context().Err() == nil
}

func (t roundTripper) once(r *http.Request) (*http.Response, error) {
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		return t.h.h2c.RoundTrip(r)
	}
	return t.h.plain.RoundTrip(r)
}

// handshakeTime limits the TLS handshake of a server in a guest.
const handshakeTime = 15 * time.Second

// transport dials sandboxes by their ID and port, which are the host of the URL. It does not keep
// connections, because an idle one would be captured in a snapshot. A server may take any time to
// answer. A request ends when its client disconnects.
func (h *Handler) transport() *http.Transport {
	return &http.Transport{
		DialContext:            func(ctx context.Context, _, addr string) (net.Conn, error) { return h.dial(ctx, addr) },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 256 << 10,
		TLSHandshakeTimeout:    handshakeTime,
		// A guest's certificate proves nothing that the connection to its port does not.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // #nosec G402 -- a guest makes its certificate itself
	}
}

// endedError reports a sandbox that ended while a server in it had the request.
type endedError struct{ error }

func (e endedError) Unwrap() error { return e.error }

// dialError reports a guest that could not be reached, in contrast to an invalid answer.
type dialError struct{ error }

func (d dialError) Unwrap() error { return d.error }

func (h *Handler) dial(ctx context.Context, addr string) (net.Conn, error) {
	id, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	c, err := h.cfg.Dialer.DialPort(ctx, id, uint16(n))
	if err != nil && h.cfg.Wake != nil && ctx.Err() == nil {
		woken, wakeErr := h.cfg.Wake(ctx, id, err)
		switch {
		case wakeErr != nil:
			err = wakeErr
		case woken:
			c, err = h.cfg.Dialer.DialPort(ctx, id, uint16(n))
		}
	}
	if err != nil {
		return nil, dialError{err}
	}
	return c, nil
}
