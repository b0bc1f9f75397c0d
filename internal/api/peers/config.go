package peers

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/leaf/keyfile"
)

// Config configures a Client.
type Config struct {
	// Allow lists the peers: host names, addresses, and CIDR blocks.
	Allow []string
	// KeyFile has the key to show to peers. It is read again before each use. If it is empty, requests are without a key.
	KeyFile string
	// CAFile has the certificates that sign those of the peers. If it is empty, the system's are used.
	CAFile string
	// ServerName is the name in the peers' certificates. If it is empty, the URL's host is.
	ServerName string
	// CertFile and CertKeyFile are a certificate to show to peers. They may be empty.
	CertFile, CertKeyFile string
	// Plain allows peers without TLS.
	Plain bool
	// Wait is the time before the first repetition of a request; it doubles each time. Default half a second.
	Wait time.Duration
	// Stall is the time without data after which another peer is asked. Default 30 s.
	Stall time.Duration
}

// Client reads from peers. It is safe for concurrent use.
type Client struct {
	cfg   Config
	names []string
	nets  []netip.Prefix
	http  *http.Client
	bytes atomic.Int64 // of blobs that arrived
}

// FetchedBytes returns the bytes of blobs that have arrived from peers.
// It is 0 for a nil Client.
func (c *Client) FetchedBytes() int64 {
	if c == nil {
		return 0
	}
	return c.bytes.Load()
}

// prepareTime is the time for a peer to prepare a snapshot: the first time it reads all of it.
const prepareTime = 15 * time.Minute

// New returns a client.
func New(c Config) (*Client, error) {
	if c.Wait <= 0 {
		c.Wait = 500 * time.Millisecond
	}
	if c.Stall <= 0 {
		c.Stall = 30 * time.Second
	}
	out := &Client{cfg: c}
	for _, a := range c.Allow {
		if err := out.allow(a); err != nil {
			return nil, err
		}
	}
	conf, err := c.tls()
	if err != nil {
		return nil, err
	}
	out.http = &http.Client{
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSClientConfig: conf, TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: 4,
			IdleConnTimeout: time.Minute, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
			ResponseHeaderTimeout: prepareTime,
		},
		// A redirect would carry the request to a host that the operator does not allow.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return out, nil
}

func (c *Client) allow(entry string) error {
	if p, err := netip.ParsePrefix(entry); err == nil {
		c.nets = append(c.nets, p.Masked())
		return nil
	}
	if a, err := netip.ParseAddr(entry); err == nil {
		c.nets = append(c.nets, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		return nil
	}
	if entry == "" || len(entry) > 253 || strings.ContainsAny(entry, "/:@?# ") {
		return fmt.Errorf("peer %.200q: want a host name, an address or a CIDR block", entry)
	}
	c.names = append(c.names, strings.ToLower(entry))
	return nil
}

func (c *Config) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", c.CAFile)
		}
	}
	if c.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.CertKeyFile); err != nil {
			return nil, err
		}
		cert, key := c.CertFile, c.CertKeyFile
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key) // it may have been renewed
			return &pair, err
		}
	}
	return conf, nil
}

// errRefused refuses a peer.
type errRefused struct{ text string }

func (e errRefused) Error() string { return e.text }

// peerOf checks the URL of a peer: it has a scheme, a host and a port only.
func (c *Client) peerOf(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return nil, errRefused{fmt.Sprintf("peer %.200q: want https://HOST:PORT", text)}
	}
	if u.Scheme == "http" && !c.cfg.Plain {
		return nil, errRefused{fmt.Sprintf("peer %.200q: this daemon asks peers over https only", text)}
	}
	if !c.allowed(u.Hostname()) {
		return nil, errRefused{fmt.Sprintf("peer %.200q: the operator of this daemon does not allow that host", text)}
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// allowed compares names with names, and addresses with addresses. A name is never resolved for the comparison: its
// address may change.
func (c *Client) allowed(host string) bool {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return slices.Contains(c.names, strings.ToLower(host))
	}
	return a.Zone() == "" && slices.ContainsFunc(c.nets, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

// key reads the key for peers.
func (c *Client) key() (string, error) {
	if c.cfg.KeyFile == "" {
		return "", nil
	}
	return keyfile.Read(c.cfg.KeyFile)
}
