package netproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	handshakeLimit = 15 * time.Second
	headLimit      = 30 * time.Second
	idleLimit      = 2 * time.Minute
)

// Interceptor sets headers on requests in TLS that it ends and makes anew.
type Interceptor struct {
	// roots verify the far end; nil are the system's.
	roots *x509.CertPool

	mu  sync.Mutex
	all map[string]*authority
}

// NewInterceptor makes one; nil roots are the system's.
func NewInterceptor(roots *x509.CertPool) *Interceptor {
	return &Interceptor{roots: roots, all: map[string]*authority{}}
}

// CA is the certificate of an authority, in PEM, which the first call makes.
func (i *Interceptor) CA(name string) (string, error) {
	a, err := i.authority(name)
	if err != nil {
		return "", err
	}
	return a.pem(), nil
}

func (i *Interceptor) authority(name string) (*authority, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if a := i.all[name]; a != nil {
		return a, nil
	}
	a, err := newAuthority(name)
	if err == nil {
		i.all[name] = a
	}
	return a, err
}

// Serve passes a session's requests on until either end closes or ctx ends. The far
// end is verified before the guest's handshake goes on: a secret goes to nobody else.
func (i *Interceptor) Serve(ctx context.Context, s Session) error {
	a, err := i.authority(s.Authority)
	if err != nil {
		return err
	}
	leaf, err := a.leaf(s.Host)
	if err != nil {
		return err
	}
	far := tls.Client(s.Far, &tls.Config{
		ServerName: strings.TrimSuffix(s.Host, "."), RootCAs: i.roots, NextProtos: []string{"h2", "http/1.1"},
		MinVersion: tls.VersionTLS12,
	})
	shake, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	if err := far.HandshakeContext(shake); err != nil {
		return fmt.Errorf("TLS with %s: %w", s.Host, err)
	}
	transport := oneTransport(far)
	defer transport.CloseIdleConnections()
	defer far.Close()
	return serveOne(ctx, s, leaf, forward(s, transport))
}

// oneTransport has one connection, and makes no other: any other would have to be judged.
func oneTransport(far *tls.Conn) *http.Transport {
	var used atomic.Bool
	return &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the connection to the host has ended")
			}
			return far, nil
		},
		ForceAttemptHTTP2: true, MaxConnsPerHost: 1, DisableCompression: true, MaxResponseHeaderBytes: 256 << 10,
	}
}

// forward sets the headers. A request whose authority is not the name that was
// judged gets none, and goes nowhere; nor does one that asks for itself.
func forward(s Session, transport http.RoundTripper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !sameHost(r.Host, s.Host):
			http.Error(w, "the request is for another host than the connection", http.StatusMisdirectedRequest)
		case asksForItself(r):
			http.Error(w, "the host sets headers on this connection, and refuses TRACE, TRACK and CONNECT",
				http.StatusMethodNotAllowed)
		case r.RequestURI == "*": // net/http answers OPTIONS * itself
			http.Error(w, "the request is for no resource", http.StatusBadRequest)
		default:
			headers := s.Headers()
			known := secretsOf(headers)
			proxyOf(s, transport, headers, known).ServeHTTP(&hiding{w, known}, r)
			known.hide(w.Header()) // trailers
		}
	})
}

// proxyOf passes one request on.
func proxyOf(
	s Session, transport http.RoundTripper, headers map[string]string, known secrets,
) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "https", s.Host
			r.Out.Host = r.In.Host
			r.Out.Trailer = nil              // a trailer could bring a header a second time
			r.Out.Header.Del("Max-Forwards") // the last server of a chain answers with what reached it
			for name, value := range headers {
				r.Out.Header.Del(name)
				r.Out.Header.Set(name, value)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if isRequest(r.Header) {
				return errors.New("the answer is a request")
			}
			known.hide(r.Header) // an upgraded connection's are not written by hiding
			return nil
		},
	}
}

func sameHost(authority, host string) bool {
	authority = strings.TrimSuffix(authority, ":443")
	return strings.EqualFold(strings.TrimSuffix(authority, "."), strings.TrimSuffix(host, "."))
}

// serveOne serves the guest's end until it is closed.
func serveOne(ctx context.Context, s Session, leaf *tls.Certificate, h http.Handler) error {
	near := &closing{Conn: s.Near, closed: make(chan struct{})}
	config := &tls.Config{
		Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	}
	server := &http.Server{
		Handler: h, TLSConfig: config, ReadHeaderTimeout: headLimit, IdleTimeout: idleLimit,
		MaxHeaderBytes: maxRequestHead, ErrorLog: log.New(io.Discard, "", 0),
	}
	l := &oneListener{conns: make(chan net.Conn, 1), closed: make(chan struct{}), addr: s.Near.LocalAddr()}
	l.conns <- tls.Server(near, config)
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }()
	select {
	case <-near.closed:
	case <-ctx.Done():
	}
	server.Close()
	near.Close()
	<-done
	return nil
}

// closing tells that it was closed.
type closing struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// oneListener has one connection.
type oneListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
	addr   net.Addr
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *oneListener) Addr() net.Addr { return l.addr }
