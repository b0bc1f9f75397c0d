package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
)

// DefaultURL is where the original's daemon listens.
const DefaultURL = "http://127.0.0.1:8889"

// Options says which daemon to talk to.
type Options struct {
	// URL is http://HOST:PORT, https://…, tcp://HOST:PORT, or unix:///PATH. Empty
	// means FORKD_URL, or DefaultURL if that is not set either.
	URL string
	// Token is shown to the daemon. Empty means FORKD_TOKEN, if URL is empty too:
	// a token is never sent to a daemon it was not meant for.
	Token string
	// Fingerprint pins the certificate of a daemon whose URL is https://…: the SHA-256 of it in
	// hex, as the daemon prints it. Nothing else of the certificate is looked at then. Empty
	// means FORKD_TLS_FINGERPRINT, if URL is empty too; else who signed it must be known here.
	Fingerprint string
	// ClientCert and ClientKey are PEM files of the certificate that is shown to a daemon at https://… that wants one
	// (--tls-client-ca), and of its key. Empty means FORKD_TLS_CLIENT_CERT and FORKD_TLS_CLIENT_KEY, if URL is empty
	// too; else none is shown.
	ClientCert, ClientKey string
	// UserAgent is what the audit log will say; empty means "forkd-go".
	UserAgent string
	// Retry is asked when no daemon answers a request that only reads, or its connection breaks before the answer; true
	// sends it again. It waits itself. nil: none is sent again.
	Retry func(ctx context.Context, err error) bool
	// Dial replaces how connections are made; for tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client talks to one daemon. It is safe for concurrent use.
type Client struct {
	connection
	networks
	hosts
	records
	authority
}

// New makes a client; it connects on first use.
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
	c := &Client{connection: connection{url: opt.URL, token: opt.Token, agent: opt.UserAgent, retry: opt.Retry}}
	c.networks.conn, c.hosts.conn = &c.connection, &c.connection
	c.records.conn, c.authority.conn = &c.connection, &c.connection
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
	c.http = &http.Client{
		Transport: roundTripper{next: tr, conn: &c.connection},
		// The API has no redirects; one would be somebody else's.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Health asks the daemon for a sign of life; it needs no token.
func (c *Client) Health(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/healthz", nil, &api.Health{})
}

// Version asks what the daemon is.
func (c *Client) Version(ctx context.Context) (api.VersionInfo, error) {
	var v api.VersionInfo
	return v, c.call(ctx, http.MethodGet, "/version", nil, &v)
}

// Metrics returns the daemon's metrics in the Prometheus text format.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	return c.text(ctx, "/metrics")
}
