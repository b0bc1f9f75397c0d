// Package agentclient is the host's side of the host-guest contract: one
// Client talks to one guest's agent over connections that the caller dials. It
// owns its connections and nothing else; it knows no VM, no daemon and no REST.
// Anything on the host may import it. The trap: connections are kept alive
// between calls, and a snapshot must not contain them, so call CloseIdle after
// Quiesce and before the memory is saved.
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

// baseURL names no host: the dial function decides where bytes go.
const baseURL = "http://agent"

// Client speaks to one agent. It is safe for concurrent use.
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

// Option changes how a Client is made.
type Option func(*options)

type options struct {
	token    string
	json     bool
	identity DialFunc
	eval     DialFunc
}

// WithEvalPort says how to open a stream to the port on which the agent evaluates without HTTP, for Eval. The agent
// need not have one. It is of no use with WithToken or WithJSON.
func WithEvalPort(dial DialFunc) Option { return func(o *options) { o.eval = dial } }

// WithIdentityPort says how to open a stream to the port on which the agent takes
// identities, for IdentityByPort.
func WithIdentityPort(dial DialFunc) Option { return func(o *options) { o.identity = dial } }

// WithToken sends token as X-Access-Token with every request.
func WithToken(token string) Option { return func(o *options) { o.token = token } }

// WithJSON speaks JSON instead of binary messages, as E2B's clients do.
func WithJSON() Option { return func(o *options) { o.json = true } }

// New makes a client; it dials on first use.
func New(dial DialFunc, opts ...Option) *Client {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		// The link is a local socket: compression would cost more than it saves.
		DisableCompression:  true,
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     idleTime,
		// One guest's garbage must not fill the host's memory.
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	c := &Client{
		transport: tr, identity: o.identity, evals: newEvals(dial, o),
		http: &http.Client{
			Transport: agentTransport{next: tr, token: o.token},
			// The agent has no redirects. One would have the guest choose the host's next request.
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

// Process is the typed client of the process service.
func (c *Client) Process() processconnect.ProcessClient { return c.process }

// Filesystem is the typed client of the filesystem service.
func (c *Client) Filesystem() filesystemconnect.FilesystemClient { return c.files }

// Agent is the typed client of forkd's own service.
func (c *Client) Agent() agentv1connect.AgentClient { return c.agent }

// HTTP reaches the plain routes; the host part of a URL is ignored.
func (c *Client) HTTP() *http.Client { return c.http }

// Ping asks the agent who it is; the first answer after a fork is the proof of
// life.
func (c *Client) Ping(ctx context.Context) (*agentv1.PingResponse, error) {
	ctx, cancel := bounded(ctx, shortCall)
	defer cancel()
	return answer(c.agent.Ping(ctx, connect.NewRequest(&agentv1.PingRequest{})))("ping")
}

// Identity makes a fresh clone a guest of its own. Idempotent, but every call
// must bring new entropy.
func (c *Client) Identity(ctx context.Context, req *agentv1.IdentityRequest) (*agentv1.IdentityResponse, error) {
	ctx, cancel := bounded(ctx, shortCall)
	defer cancel()
	return answer(c.agent.Identity(ctx, connect.NewRequest(req)))("set identity")
}

// Warm starts interpreters and runs code in them.
func (c *Client) Warm(ctx context.Context, req *agentv1.WarmRequest) (*agentv1.WarmResponse, error) {
	return answer(c.agent.Warm(ctx, connect.NewRequest(req)))("warm")
}

// Quiesce makes the guest hold still for a snapshot, then drops the idle
// connections of this client.
func (c *Client) Quiesce(ctx context.Context, req *agentv1.QuiesceRequest) (*agentv1.QuiesceResponse, error) {
	ctx, cancel := bounded(ctx, quiesceCall)
	defer cancel()
	resp, err := answer(c.agent.Quiesce(ctx, connect.NewRequest(req)))("quiesce")
	c.CloseIdle()
	return resp, err
}

// Inventory asks for what is in the guest, part by part; with changesOnly files
// that are as in the image are left out if the agent can. The caller closes the stream.
func (c *Client) Inventory(ctx context.Context,
	changesOnly bool) (*connect.ServerStreamForClient[agentv1.InventoryPart], error) {
	s, err := c.inventory.List(ctx, connect.NewRequest(&agentv1.ListRequest{ChangesOnly: changesOnly}))
	if err != nil {
		return nil, fmt.Errorf("list what is in the guest: %w", said(err))
	}
	return s, nil
}

// Health asks the one route that needs no token.
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

// CloseIdle closes connections that carry no request now.
func (c *Client) CloseIdle() {
	c.transport.CloseIdleConnections()
	c.evals.each((*unary).closeIdle)
}

// Close is CloseIdle under the name an owner looks for; requests in flight end
// with their contexts.
func (c *Client) Close() error {
	c.identityAhead.drop()
	c.evals.each((*unary).close)
	c.CloseIdle()
	return nil
}

// answer unwraps a unary response and says what was being done on failure.
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
	if req.URL.Path != agentv1connect.AgentIdentityProcedure { // which sets the clock, and says by how much
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
