// Package agentclient is the host's side of the contract between host and guest. A Client talks to
// the agent of one guest over connections that the caller dials. The Client owns these connections
// and no other state. It has no knowledge of VMs, the daemon or the REST API, and any package on
// the host may import it.
//
// A Client keeps connections alive between calls, and a snapshot must not contain them. Call
// CloseIdle after Quiesce and before the memory is saved.
package agentclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
	"github.com/forkd/forkd/internal/guest/agentproto/guard"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
	"github.com/forkd/forkd/internal/guest/agentproto/protobound"
)

// baseURL names no real host: the dial function chooses the destination.
const baseURL = "http://agent"

// Client talks to one agent. It is safe for concurrent use.
type Client struct {
	transport *http.Transport
	http      *http.Client
	agent     agentv1connect.AgentClient
	inventory agentv1connect.InventoryClient
	process   processconnect.ProcessClient
	files     filesystemconnect.FilesystemClient
	identity  DialFunc // may be nil
	evals     *evals

	identityAhead ahead
}

// DialFunc opens a byte stream to the agent's port.
type DialFunc func(context.Context) (net.Conn, error)

// Option configures a Client.
type Option func(*options)

type options struct {
	token    string
	json     bool
	identity DialFunc
	eval     DialFunc
}

// WithEvalPort sets how Eval opens a stream to the agent's port for evaluation without HTTP. The
// agent need not have one. Do not combine it with WithToken or WithJSON: it has no effect then.
func WithEvalPort(dial DialFunc) Option { return func(o *options) { o.eval = dial } }

// WithIdentityPort sets how IdentityByPort opens a stream to the agent's identity port.
func WithIdentityPort(dial DialFunc) Option { return func(o *options) { o.identity = dial } }

// WithToken sends token as X-Access-Token with every request.
func WithToken(token string) Option { return func(o *options) { o.token = token } }

// WithJSON uses JSON instead of binary messages, as E2B's clients do.
func WithJSON() Option { return func(o *options) { o.json = true } }

// New returns a client. It dials on first use.
func New(dial DialFunc, opts ...Option) *Client {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		// The link is a local socket, so compression would cost more than it saves.
		DisableCompression:  true,
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     idleTime,
		// Garbage from one guest must not fill the host's memory.
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	c := &Client{
		transport: tr, identity: o.identity, evals: newEvals(dial, o),
		http: &http.Client{
			Transport: agentTransport{next: tr, token: o.token},
			// The agent has no redirects. With a redirect, the guest would choose the host's next
			// request.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	co := connectOptions(o)
	c.agent = agentv1connect.NewAgentClient(c.http, baseURL, co...)
	c.inventory = agentv1connect.NewInventoryClient(c.http, baseURL, co...)
	c.process = processconnect.NewProcessClient(c.http, baseURL, co...)
	c.files = filesystemconnect.NewFilesystemClient(c.http, baseURL, co...)
	return c
}

func connectOptions(o options) []connect.ClientOption {
	co := append(guard.Options(protobound.MaxElements), connect.WithInterceptors(words{}))
	if o.json {
		co = append(co, connect.WithProtoJSON())
	}
	return co
}

// Process returns the typed client of the process service.
func (c *Client) Process() processconnect.ProcessClient { return c.process }

// Filesystem returns the typed client of the filesystem service.
func (c *Client) Filesystem() filesystemconnect.FilesystemClient { return c.files }

// Agent returns the typed client of forkd's own service.
func (c *Client) Agent() agentv1connect.AgentClient { return c.agent }

// HTTP returns a client for the plain routes. It ignores the host part of a URL.
func (c *Client) HTTP() *http.Client { return c.http }

// Ping asks the agent for its version and abilities. The first answer after a fork proves that the
// guest runs.
func (c *Client) Ping(ctx context.Context) (*agentv1.PingResponse, error) {
	ctx, cancel := bounded(ctx, shortCall)
	defer cancel()
	return answer(c.agent.Ping(ctx, connect.NewRequest(&agentv1.PingRequest{})))("ping")
}

// Identity gives a fresh clone its own identity. It is idempotent, but every call must bring new
// entropy.
func (c *Client) Identity(ctx context.Context, req *agentv1.IdentityRequest) (*agentv1.IdentityResponse, error) {
	ctx, cancel := bounded(ctx, shortCall)
	defer cancel()
	return answer(c.agent.Identity(ctx, connect.NewRequest(req)))("set identity")
}

// Warm starts interpreters and runs code in them.
func (c *Client) Warm(ctx context.Context, req *agentv1.WarmRequest) (*agentv1.WarmResponse, error) {
	return answer(c.agent.Warm(ctx, connect.NewRequest(req)))("warm")
}

// Quiesce brings the guest to rest for a snapshot, then closes the idle connections of this client.
func (c *Client) Quiesce(ctx context.Context, req *agentv1.QuiesceRequest) (*agentv1.QuiesceResponse, error) {
	ctx, cancel := bounded(ctx, quiesceCall)
	defer cancel()
	resp, err := answer(c.agent.Quiesce(ctx, connect.NewRequest(req)))("quiesce")
	c.CloseIdle()
	return resp, err
}

// Inventory streams the contents of the guest in parts. With changesOnly, the agent leaves out
// unchanged files of the image, if it can. The caller closes the stream.
func (c *Client) Inventory(ctx context.Context,
	changesOnly bool) (*connect.ServerStreamForClient[agentv1.InventoryPart], error) {
	s, err := c.inventory.List(ctx, connect.NewRequest(&agentv1.ListRequest{ChangesOnly: changesOnly}))
	if err != nil {
		return nil, fmt.Errorf("list what is in the guest: %w", said(err))
	}
	return s, nil
}

// Health calls the health route, the only one without a token.
func (c *Client) Health(ctx context.Context) error {
	ctx, cancel := bounded(ctx, shortCall)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, baseURL+"/health", nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask health: %w", said(err))
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096))
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("ask health: status %d", resp.StatusCode)
	}
	return nil
}

// CloseIdle closes connections without a request.
func (c *Client) CloseIdle() {
	c.transport.CloseIdleConnections()
	c.evals.each((*unary).closeIdle)
}

// Close closes idle and prepared connections. Requests in flight end with their contexts.
func (c *Client) Close() error {
	c.identityAhead.drop()
	c.evals.each((*unary).close)
	c.CloseIdle()
	return nil
}

// answer unwraps a unary response. On failure it adds the name of the operation to the error.
func answer[T any](resp *connect.Response[T], err error) func(what string) (*T, error) {
	return func(what string) (*T, error) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, said(err))
		}
		return resp.Msg, nil
	}
}

// agentTransport adds the token to requests and bounds the answers.
type agentTransport struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (t agentTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if t.token != "" {
		req.Header.Set("X-Access-Token", t.token)
	}
	if req.URL.Path != agentv1connect.AgentIdentityProcedure { // Identity sets the clock and reports the difference
		req.Header.Set(agentproto.HeaderHostTime, agentproto.HostTime())
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := guard.Response(req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}
