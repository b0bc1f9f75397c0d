package netproxy

import (
	"context"
	"crypto/rand"
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

	"github.com/forkd/forkd/internal/leaf/earlyanswer"
)

const (
	handshakeLimit = 15 * time.Second
	headLimit      = 30 * time.Second
	idleLimit      = 2 * time.Minute
)

// Interceptor sets headers on TLS requests. It terminates the guest's TLS and opens its own to the
// host.
type Interceptor struct {
	// roots verify the far end. If nil, the system's.
	roots *x509.CertPool
	seed  []byte // of the authorities' keys

	mu  sync.Mutex
	all map[string]*authority
}

// NewInterceptor returns an Interceptor. If roots is nil, it uses the system's. The keys of its authorities derive
// from the secret seed of SeedBytes bytes. If seed is nil, it is random.
func NewInterceptor(roots *x509.CertPool, seed []byte) *Interceptor {
	if seed == nil {
		seed = make([]byte, SeedBytes)
		_, _ = rand.Read(seed) // never fails
	}
	return &Interceptor{roots: roots, seed: seed, all: map[string]*authority{}}
}

// CA returns the certificate of an authority, in PEM. The first call creates the authority.
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
	a, err := newAuthority(i.seed, name)
	if err == nil {
		i.all[name] = a
	}
	return a, err
}

// Serve passes on a session's requests until either end closes or ctx ends. It verifies the far end
// before the guest's handshake, so secrets go only to the verified host.
func (i *Interceptor) Serve(ctx context.Context, s Session) error {
	a, err := i.authority(s.Authority)
	if err != nil {
		return err
	}
	leaf, err := a.leaf(s.Host)
	if err != nil {
		return err
	}
	ended := &closing{Conn: s.Far, closed: make(chan struct{})}
	far := tls.Client(ended, &tls.Config{
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
	return serveOne(ctx, s, leaf, forward(s, transport), ended.closed)
}

// oneTransport uses only the given connection. Another connection would have to be judged.
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

// forward sets the headers. It refuses a request whose authority differs from the judged name, and
// a request that would be returned to its sender. A server may answer before it has the whole request.
func forward(s Session, transport http.RoundTripper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = earlyanswer.Allow(w, r)
		switch {
		case !sameHost(r.Host, s.Host):
			http.Error(w, "the request is for another host than the connection", http.StatusMisdirectedRequest)
		case asksForItself(r):
			http.Error(w, "the host sets headers on this connection, and refuses TRACE, TRACK and CONNECT",
				http.StatusMethodNotAllowed)
		case r.RequestURI == "*": // net/http answers OPTIONS * itself
			http.Error(w, "the request is for no resource", http.StatusBadRequest)
		case passSigned(s, transport, w, r):
		default:
			headers := s.Headers()
			if why, incomplete := headers[Incomplete]; incomplete {
				http.Error(w, "forkd adds a secret to requests to this host, and refuses them without it: "+why,
					http.StatusBadGateway)
				return
			}
			known := secretsOf(headers)
			proxyOf(s, transport, headers, known).ServeHTTP(&hiding{w, known}, r)
			known.hide(w.Header()) // trailers
		}
	})
}

// proxyOf returns a proxy for one request.
func proxyOf(
	s Session, transport http.RoundTripper, headers map[string]string, known secrets,
) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "https", s.Host
			r.Out.Host = r.In.Host
			r.Out.Trailer = nil              // a trailer could add a header a second time
			r.Out.Header.Del("Max-Forwards") // with it, the last server of a chain returns the request
			for name, value := range headers {
				r.Out.Header.Del(name)
				r.Out.Header.Set(name, value)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if isRequest(r.Header) {
				return errors.New("the answer is a request")
			}
			known.hide(r.Header) // hiding does not write the headers of an upgraded connection
			return nil
		},
	}
}

// passSigned signs and sends a request, or refuses it. It returns false if the host needs no signature.
func passSigned(s Session, transport http.RoundTripper, w http.ResponseWriter, r *http.Request) bool {
	if s.Signer == nil {
		return false
	}
	signer := s.Signer()
	if signer == nil {
		return false
	}
	signed, err := signer.Sign(r)
	if err != nil {
		signer.Refuse(w, err)
		return true
	}
	known := secrets(signer.Secrets())
	proxy := proxyOf(s, transport, nil, known)
	proxy.Rewrite = func(r *httputil.ProxyRequest) {
		r.Out.URL, r.Out.Host, r.Out.Header, r.Out.Trailer = signed.URL, signed.Host, signed.Header, nil
		if r.Out.ContentLength = signed.ContentLength; signed.ContentLength > 0 {
			r.Out.Body = signed.Body
		} else {
			r.Out.Body = nil
		}
	}
	proxy.ServeHTTP(&hiding{w, known}, r)
	known.hide(w.Header()) // trailers
	return true
}

func sameHost(authority, host string) bool {
	authority = strings.TrimSuffix(authority, ":443")
	return strings.EqualFold(strings.TrimSuffix(authority, "."), strings.TrimSuffix(host, "."))
}

// serveOne serves the guest's end until it is closed. When the far end has ended, the guest's end is closed after its
// requests in progress. Otherwise a client that keeps connections alive would send its next requests in vain.
func serveOne(ctx context.Context, s Session, leaf *tls.Certificate, h http.Handler, ended <-chan struct{}) error {
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
	case <-ended:
		server.Shutdown(ctx)
	}
	server.Close()
	near.Close()
	<-done
	return nil
}

// closing reports when it was closed.
type closing struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// oneListener returns one connection.
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
