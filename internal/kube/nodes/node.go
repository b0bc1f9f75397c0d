package nodes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/keyfile"
)

// Node is one node of a set.
type Node struct {
	// Entry is the node's entry in the list.
	Entry
	// URL has the scheme and the host of the node's daemon.
	URL *url.URL
	// HTTP sends requests to the node by HTTP/1.1, HTTP2 by HTTP/2 for gRPC.
	HTTP, HTTP2 *http.Transport

	mu    sync.Mutex // guards the fields below
	facts api.Node
	seen  time.Time // when the facts were asked for; zero before the first answer
	err   error     // of the last poll; nil after a success
	fails int       // polls in a row without an answer
	other bool      // the last poll had the identity of another node
	wake  chan struct{}
}

// Limits of requests to nodes.
const (
	dialTime = 5 * time.Second
	pollTime = 5 * time.Second
	maxFacts = 4 << 20
)

func newNode(e Entry) (*Node, error) {
	u, err := url.Parse(e.URL)
	if err != nil {
		return nil, err
	}
	n := &Node{Entry: e, URL: &url.URL{Scheme: u.Scheme, Host: u.Host}, wake: make(chan struct{}, 1)}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.ServerName}
	if e.CAFile != "" {
		pem, err := os.ReadFile(e.CAFile)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", e.Name, err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("node %s: %s has no certificate", e.Name, e.CAFile)
		}
	}
	n.HTTP, n.HTTP2 = transport(conf), transport(conf)
	n.HTTP.Protocols = new(http.Protocols)
	n.HTTP.Protocols.SetHTTP1(true)
	n.HTTP2.Protocols = new(http.Protocols)
	n.HTTP2.Protocols.SetHTTP2(true)
	n.HTTP2.Protocols.SetUnencryptedHTTP2(true)
	return n, nil
}

// transport waits any time for an answer: programs in sandboxes may take long. The daemon closes idle connections
// after two minutes.
func transport(conf *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     conf.Clone(),
		TLSHandshakeTimeout: dialTime, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
		DisableCompression: true, MaxResponseHeaderBytes: 256 << 10, ExpectContinueTimeout: time.Second,
	}
}

func (n *Node) close() {
	n.HTTP.CloseIdleConnections()
	n.HTTP2.CloseIdleConnections()
}

// Facts returns the last facts of the node, and when they were asked for. The time is zero before the first answer.
func (n *Node) Facts() (api.Node, time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.facts, n.seen
}

// Up reports whether the node answered its last poll.
func (n *Node) Up() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err == nil && !n.seen.IsZero()
}

// Foreign reports whether another node answers at the address.
func (n *Node) Foreign() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.other
}

// Look asks for new facts soon, for example after a change of the node's snapshots.
func (n *Node) Look() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// poll asks the node for its facts once.
func (n *Node) poll(ctx context.Context) (api.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	token, err := keyfile.Read(n.TokenFile)
	if err != nil {
		return api.Node{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL.String()+"/v1/node", nil)
	if err != nil {
		return api.Node{}, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := n.HTTP.RoundTrip(r)
	if err != nil {
		return api.Node{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFacts+1))
	switch {
	case err != nil:
		return api.Node{}, err
	case len(body) > maxFacts:
		return api.Node{}, fmt.Errorf("GET /v1/node answered more than %d bytes", maxFacts)
	case resp.StatusCode != http.StatusOK:
		var e api.Error
		_ = json.Unmarshal(body, &e)
		return api.Node{}, fmt.Errorf("GET /v1/node answered %d: %s", resp.StatusCode, sandbox.Clip(e.Message))
	}
	var facts api.Node
	if err := json.Unmarshal(body, &facts); err != nil {
		return api.Node{}, fmt.Errorf("GET /v1/node answered no JSON: %w", err)
	}
	return facts, n.identity(facts)
}

// errIdentity reports an answer of another node.
type errIdentity struct{ text string }

func (e errIdentity) Error() string { return e.text }

// identity compares the identity in an answer with the entry.
func (n *Node) identity(f api.Node) error {
	switch {
	case f.Key == "":
		return errIdentity{"the daemon has no name of a node, so its sandboxes have no key"}
	case f.Key != string(n.Key()) || f.UID != n.UID || f.Name != "" && f.Name != n.Name:
		return errIdentity{fmt.Sprintf("the daemon at %s is node %q with UID %q and key %q, want UID %q and key %q", n.URL,
			sandbox.Clip(f.Name), sandbox.Clip(f.UID), sandbox.Clip(f.Key), n.UID, n.Key())}
	}
	return nil
}
