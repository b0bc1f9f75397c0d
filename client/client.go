package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
)

// DefaultURL is the address of the original's daemon.
const DefaultURL = "http://127.0.0.1:8889"

// Options select a daemon and configure the connection to it.
type Options struct {
	// URL is http://HOST:PORT, https://…, tcp://HOST:PORT, or unix:///PATH. If empty, the client
	// uses FORKD_URL, or DefaultURL if FORKD_URL is not set.
	URL string
	// Token is sent to the daemon with each request. If Token and URL are both empty, the client
	// uses FORKD_TOKEN. It never sends FORKD_TOKEN to a URL from Options, because the token may be
	// for another daemon.
	Token string
	// Fingerprint pins the certificate of a daemon at https://…. It is the certificate's SHA-256 in
	// hex, as the daemon prints it. With a pin the client checks no other part of the certificate.
	// If Fingerprint and URL are both empty, the client uses FORKD_TLS_FINGERPRINT. Without a pin,
	// an authority known to this host must have signed the certificate.
	Fingerprint string
	// ClientCert and ClientKey are PEM files with the client's certificate and its key, for a
	// daemon at https://… with --tls-client-ca. If they and URL are empty, the client uses
	// FORKD_TLS_CLIENT_CERT and FORKD_TLS_CLIENT_KEY. Otherwise empty means no client certificate.
	ClientCert, ClientKey string
	// UserAgent is recorded in the audit log. If empty, it is "forkd-go".
	UserAgent string
	// Retry is called when no daemon answers a GET request without a body, or when the connection
	// breaks before the answer. It waits for a suitable time itself, and returns true to send the
	// request again. If nil, the client does not retry.
	Retry func(ctx context.Context, err error) bool
	// Header is sent with each request, in addition to the client's own headers. A gateway sends a request with
	// Forkd-Node to that node.
	Header http.Header
	// Dial opens connections instead of the default. Tests use it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client sends requests to one daemon. It is safe for concurrent use.
type Client struct {
	connection
	networks
	hosts
	records
	authority
	travels
}

// checkPort returns an error for a port that no address has. url.Parse checks only for digits.
func checkPort(u *url.URL) error {
	port := u.Port()
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return fmt.Errorf("port %s, want 1 to 65535", port)
	}
	return nil
}

// New returns a client. The client connects on its first request.
func New(opt Options) (*Client, error) {
	if opt.URL == "" {
		opt.URL = os.Getenv("FORKD_URL")
		if opt.Token == "" {
			opt.Token = os.Getenv("FORKD_TOKEN")
		}
		if opt.Fingerprint == "" {
			opt.Fingerprint = os.Getenv("FORKD_TLS_FINGERPRINT")
		}
		if opt.ClientCert == "" && opt.ClientKey == "" {
			opt.ClientCert, opt.ClientKey = os.Getenv("FORKD_TLS_CLIENT_CERT"), os.Getenv("FORKD_TLS_CLIENT_KEY")
		}
	}
	if opt.URL == "" {
		opt.URL = DefaultURL
	}
	if opt.UserAgent == "" {
		opt.UserAgent = "forkd-go"
	}
	u, err := url.Parse(opt.URL)
	if err != nil {
		return nil, fmt.Errorf("parse daemon's URL: %w", err)
	}
	if err := checkPort(u); err != nil {
		return nil, fmt.Errorf("daemon's URL %q: %w", opt.URL, err)
	}
	c := &Client{connection: connection{url: opt.URL, token: opt.Token, agent: opt.UserAgent, retry: opt.Retry,
		header: opt.Header.Clone()}}
	c.networks.conn, c.hosts.conn = &c.connection, &c.connection
	c.records.conn, c.authority.conn, c.travels.conn = &c.connection, &c.connection, &c.connection
	tr := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		Proxy:                  http.ProxyFromEnvironment,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	}
	if tr.TLSClientConfig, err = tlsConfig(u, opt); err != nil {
		return nil, err
	}
	switch {
	case u.Scheme == "unix" && u.Path != "" && u.Host == "":
		c.base = "http://forkd"
		tr.Proxy = nil
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", u.Path)
		}
	case u.Scheme == "tcp" && u.Host != "":
		c.base = "http://" + u.Host
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		c.base = strings.TrimSuffix(u.Scheme+"://"+u.Host+u.Path, "/")
	default:
		return nil, fmt.Errorf("daemon's URL %q: want http://HOST:PORT, https://HOST:PORT or unix:///PATH", opt.URL)
	}
	if opt.Dial != nil {
		tr.DialContext = opt.Dial
	}
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, &dialError{err}
		}
		return conn, nil
	}
	c.plain = tr
	c.http = &http.Client{
		Transport: roundTripper{next: tr, conn: &c.connection},
		// The API has no redirects. A redirect would come from another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Health returns nil if the daemon answers. It needs no token.
func (c *Client) Health(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/healthz", nil, &api.Health{})
}

// Version returns the daemon's version and build.
func (c *Client) Version(ctx context.Context) (api.VersionInfo, error) {
	var v api.VersionInfo
	return v, c.call(ctx, http.MethodGet, "/version", nil, &v)
}

// Metrics returns the daemon's metrics in the Prometheus text format.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	return c.text(ctx, "/metrics")
}
