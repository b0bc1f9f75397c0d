// Package guestproxy carries requests of clients to guests: to the HTTP server of the agent, and to TCP ports as byte
// streams. It does not trust the answers: a guest must not act in the daemon's name. Requests to servers in sandboxes
// by host name are package ingress.
package guestproxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/guard"
)

// Agent forwards requests to the agent's own HTTP server: process and file services as Connect
// RPC, and /files. Streams flow in both directions. When the client disconnects, its request to the
// agent ends too.
type Agent struct {
	answers   respond.Answers
	sandboxes func(context.Context) roles.Sandboxes
	guests    func(context.Context) sandbox.Guests
	proxy     *httputil.ReverseProxy
}

// NewAgent returns a proxy. sandboxes and guests return parts of the engine, as the sender of a context's request may
// see them.
func NewAgent(a respond.Answers, sandboxes func(context.Context) roles.Sandboxes,
	guests func(context.Context) sandbox.Guests) *Agent {
	p := &Agent{answers: a, sandboxes: sandboxes, guests: guests}
	p.proxy = p.reverseProxy()
	return p
}

// Serve forwards a request to the agent of a sandbox. The values id and path of the request's pattern name the sandbox
// and the agent's path. The request's body must stay readable until the answer ends.
func (p *Agent) Serve(w http.ResponseWriter, r *http.Request, of sandbox.Info) {
	p.proxy.ServeHTTP(w, withServed(r, of))
}

func (p *Agent) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       rewriteForAgent,
		Transport:     guard.Transport{Next: p.transport()},
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			p.explainBreaks(resp)
			return distrustAgent(resp)
		},
		ErrorLog: p.answers.ServerLog(),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			silent := iodeadline.Silence(r.Context())
			switch {
			case silent != nil:
				err = silent
			case r.Context().Err() != nil && !principal.KeyEnded(r.Context()):
				panic(http.ErrAbortHandler) // the client is no longer connected
			default:
				err = p.broken(r, err)
			}
			respond.Error(w, p.answers.Failed(r.Context(), err))
		},
	}
}

// broken returns the reason for a missing answer of an agent. A violation of the protocol is
// reported as such, not as the end of the VM.
func (p *Agent) broken(r *http.Request, err error) error {
	id := r.PathValue("id")
	var violation *agentproto.Violation
	if errors.As(err, &violation) {
		return apierror.New(api.CodeGuestGone, api.ReasonAgentSilent, "sandbox %s: %v", id, violation)
	}
	if f := p.lost(r.Context()); f != nil {
		return f
	}
	return Failure(id, err)
}

// transport dials sandboxes by their ID, which is the host of the URL. It does not keep
// connections, because an idle one would be captured in a snapshot.
func (p *Agent) transport() *http.Transport {
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

// Failure describes a failure between daemon and agent.
func Failure(id string, err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return apierror.New(api.CodeTooLarge, "", "request to sandbox %s is over the limit", id)
	case apierror.CodeOf(err) != api.CodeInternal:
		return err
	}
	return apierror.New(api.CodeGuestGone, "", "sandbox %s: its agent broke off: %v", id, err)
}
