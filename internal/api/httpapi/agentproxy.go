package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/guard"
	"github.com/forkd/forkd/internal/leaf/earlyanswer"
)

// agentProxy forwards requests to the agent's own HTTP server: process and file services as Connect
// RPC, and /files. Streams flow in both directions. When the client disconnects, its request to the
// agent ends too.
type agentProxy struct {
	respond.Answers
	sandboxes shown[roles.Sandboxes]
	guests    shown[sandbox.Guests]
	proxy     *httputil.ReverseProxy
}

func newAgentProxy(a respond.Answers, sandboxes shown[roles.Sandboxes], guests shown[sandbox.Guests]) *agentProxy {
	p := &agentProxy{Answers: a, sandboxes: sandboxes, guests: guests}
	p.proxy = p.reverseProxy()
	return p
}

func (p *agentProxy) add(rt *router) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		rt.describe(huma.Operation{
			OperationID: "agent-" + map[string]string{http.MethodGet: "get", http.MethodPost: "post"}[method],
			Method:      method, Path: "/v1/sandboxes/{id}/agent/{path}", Tags: []string{"guests"},
			Summary:   "Pass a request through to the agent in the guest, any method, streaming",
			Responses: map[string]*huma.Response{"200": {Description: "Whatever the agent answers"}},
		})
		rt.added = append(rt.added, method+" /v1/sandboxes/{id}/agent/{path}")
	}
	const as = "POST /v1/sandboxes/{id}/agent/{path}" // other methods need the same scope
	rt.mux.HandleFunc(agentRoute, rt.rawHandler(as, func(w http.ResponseWriter, r *http.Request) error {
		// A clear error is better than a failed dial.
		info, err := p.sandboxes(r.Context()).Get(r.PathValue("id"))
		if err != nil {
			return err
		}
		// The agent may answer before it has read the whole request. Without this call, the server
		// would then close the request's body while the proxy still reads it.
		w = earlyanswer.Allow(w, r)
		r.Body = release(r.Body)
		p.proxy.ServeHTTP(w, withServed(r, info))
		return nil
	}))
}

func (p *agentProxy) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       rewriteForAgent,
		Transport:     guard.Transport{Next: p.transport()},
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			p.explainBreaks(resp)
			return distrustAgent(resp)
		},
		ErrorLog: p.ServerLog(),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			silent := iodeadline.Silence(r.Context())
			switch {
			case silent != nil:
				err = silent
			case r.Context().Err() != nil && !keys.Ended(r.Context()):
				panic(http.ErrAbortHandler) // the client is no longer connected
			default:
				err = p.broken(r, err)
			}
			respond.Error(w, p.Failed(r.Context(), err))
		},
	}
}

// broken returns the reason for a missing answer of an agent. A violation of the protocol is
// reported as such, not as the end of the VM.
func (p *agentProxy) broken(r *http.Request, err error) error {
	id := r.PathValue("id")
	var violation *agentproto.Violation
	if errors.As(err, &violation) {
		return apierror.New(api.CodeGuestGone, api.ReasonAgentSilent, "sandbox %s: %v", id, violation)
	}
	if f := p.lost(r.Context()); f != nil {
		return f
	}
	return proxyFailure(id, err)
}

// transport dials sandboxes by their ID, which is the host of the URL. It does not keep
// connections, because an idle one would be captured in a snapshot.
func (p *agentProxy) transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			id, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return p.guests(ctx).DialAgent(ctx, id)
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

func rewriteForAgent(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = "http", p.In.PathValue("id")
	p.Out.URL.Path, p.Out.URL.RawPath = "/"+p.In.PathValue("path"), ""
	p.Out.Host = "agent"
	p.Out.Header.Del("Authorization")
	p.Out.Header.Del(api.HeaderKey)
	p.Out.Header.Del(api.HeaderAgentUser)
	p.Out.Header.Del(agentproto.HeaderAsRoot)
	p.Out.Header.Set(agentproto.HeaderHostTime, agentproto.HostTime())
	requestinfo.From(p.In.Context()).Trace.SetHeader(p.Out.Header) // the program's parent is the span of this request
	if user := p.In.Header.Get(api.HeaderAgentUser); user != "" {
		p.Out.SetBasicAuth(user, "")
	}
}

// distrustAgent stops a guest's answer from acting in the daemon's name when a browser opens it.
func distrustAgent(resp *http.Response) error {
	if err := guard.Proxied(resp); err != nil {
		return err
	}
	resp.Header.Set("Content-Security-Policy", "sandbox")
	resp.Header.Set("X-Content-Type-Options", "nosniff")
	resp.Header.Del(api.HeaderError)
	resp.Header.Del(api.HeaderMovedTo)
	resp.Header.Del(api.HeaderRequestID)
	resp.Header.Del(api.HeaderTraceID)
	return nil
}

// proxyFailure describes a failure between daemon and agent.
func proxyFailure(id string, err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return apierror.New(api.CodeTooLarge, "", "request to sandbox %s is over the limit", id)
	case apierror.CodeOf(err) != api.CodeInternal:
		return err
	}
	return apierror.New(api.CodeGuestGone, "", "sandbox %s: its agent broke off: %v", id, err)
}
