package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// UserAgent is what the audit log will say; empty means "forkd-go".
	UserAgent string
	// Dial replaces how connections are made; for tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client talks to one daemon. It is safe for concurrent use.
type Client struct {
	url   string // as given
	base  string // with http scheme, no slash at its end
	http  *http.Client
	token string
	agent string
}

// New makes a client; it connects on first use.
func New(opt Options) (*Client, error) {
	if opt.URL == "" {
		opt.URL = os.Getenv("FORKD_URL")
		if opt.Token == "" {
			opt.Token = os.Getenv("FORKD_TOKEN")
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
	c := &Client{url: opt.URL, token: opt.Token, agent: opt.UserAgent}
	tr := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		Proxy:                  http.ProxyFromEnvironment,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 1 << 20,
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
		Transport: roundTripper{next: tr, client: c},
		// The API has no redirects; one would be somebody else's.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// URL is the daemon's URL as it was given.
func (c *Client) URL() string { return c.url }

// Close drops idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// roundTripper adds what every request carries, and turns the daemon's own
// errors into *Error below libraries that would not know their shape.
type roundTripper struct {
	next   *http.Transport
	client *Client
}

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", t.client.agent)
	if t.client.token != "" {
		r.Header.Set("Authorization", "Bearer "+t.client.token)
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, disconnected(t.client.url, r, err)
	}
	if resp.Header.Get(api.HeaderError) != "" {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = answerBody{resp.Body, t.client.url, r}
	}
	return resp, nil
}

// CloseIdleConnections is what http.Client.CloseIdleConnections looks for.
func (t roundTripper) CloseIdleConnections() { t.next.CloseIdleConnections() }

// call is one JSON request. in and out may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	_, err := c.callHeader(ctx, method, path, in, out)
	return err
}

// callHeader is call for answers whose headers matter.
func (c *Client) callHeader(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	resp, err := c.send(ctx, method, path, body, http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
		return resp.Header, err
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		if ended := endOf(err); ended != nil {
			return nil, ended
		}
		return nil, fmt.Errorf("decode the daemon's answer to %s %s: %w", method, path, err)
	}
	return resp.Header, nil
}

// endOf is the end of a connection or of the caller's patience in an error of
// reading an answer; nil if it is none.
func endOf(err error) error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return nil
}

// maxAnswer bounds an answer that is read whole: two streams of output as
// JSON escapes and base64, the largest there is, are below.
const maxAnswer = 256 << 20

// send makes a request and checks the status; the caller closes the body.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader,
	header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := c.http.Do(r)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return nil, e // without net/http's "Post ..." around it
		}
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	return resp, nil
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

func (c *Client) text(ctx context.Context, path string) (string, error) {
	resp, err := c.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return string(b), err
}
