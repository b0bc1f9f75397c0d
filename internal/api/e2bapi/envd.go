package e2bapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/forkd/forkd/internal/api/e2bapi/filesign"
	"github.com/forkd/forkd/internal/api/e2bapi/target"
	"github.com/forkd/forkd/internal/api/earlyanswer"
	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
	"github.com/forkd/forkd/internal/guest/agentproto/guard"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
)

// unauthorized is the text that clients know from E2B.
const unauthorized = "unauthorized access, please provide a valid access token or method signing if supported"

const headerToken = "X-Access-Token"

// envd is what E2B's clients take for its daemon in the guest: the sandbox's agent, behind a
// check of the sandbox's token.
type envd struct {
	h         *Handler
	proxy     *httputil.ReverseProxy
	transport http.RoundTripper
}

func newEnvd(h *Handler) *envd {
	e := &envd{h: h, transport: agentTransport(h.opt.Engine)}
	e.proxy = &httputil.ReverseProxy{
		Rewrite:        rewriteForAgent,
		Transport:      guard.Transport{Next: resender{h, e.transport}},
		FlushInterval:  -1, // each message goes out singly
		ModifyResponse: openToAll,
		ErrorLog:       slog.NewLogLogger(h.opt.Log.Handler(), slog.LevelDebug),
		ErrorHandler:   e.broken,
	}
	return e
}

// agentTransport dials agents by the sandbox's id, which stands in the URL's host. Connections
// are not kept: one that lay idle would end up in a snapshot.
func agentTransport(engine Engine) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			id, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return engine.DialAgent(ctx, id)
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// targetKey is where a request's context has its target.
type targetKey struct{}

func targetOf(ctx context.Context) target.Target {
	t, _ := ctx.Value(targetKey{}).(target.Target)
	return t
}

// serve passes a request on to the agent of a sandbox that runs.
func (e *envd) serve(w http.ResponseWriter, r *http.Request, to target.Target) {
	if r.Method == http.MethodOptions {
		preflight(w)
		return
	}
	switch {
	case !isEnvdPath(r.URL.Path):
		w.Header().Set("Access-Control-Allow-Origin", "*")
		writeJSON(w, http.StatusNotFound, failf(http.StatusNotFound, "there is no such route"))
		return
	case r.URL.Path != "/health":
		if err := e.admit(r, to.ID); err != nil {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			writeJSON(w, http.StatusUnauthorized, failf(http.StatusUnauthorized, "%s", err.Error()))
			return
		}
		e.noteAdmitted(r, to)
	}
	// The agent may answer before it has read all of the request: input streams for as long as
	// a process lives.
	w = earlyanswer.Allow(w, r)
	e.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, to)))
}

// isEnvdPath tells what is for clients from the agent's routes for its host.
func isEnvdPath(path string) bool {
	switch path {
	case "/health", "/metrics", "/envs", "/files":
		return true
	}
	for _, service := range []string{processconnect.ProcessName, filesystemconnect.FilesystemName} {
		if method, ok := strings.CutPrefix(path, "/"+service+"/"); ok {
			return method != "" && !strings.Contains(method, "/")
		}
	}
	return false
}

// admit checks a request against the sandbox's record. A sandbox is closed unless its record
// says that it is open: one without a record or without a token refuses every request.
func (e *envd) admit(r *http.Request, id string) error {
	rec, ok := e.h.opt.Records.Get(id)
	switch shown := r.Header.Get(headerToken); {
	case !ok:
		return errors.New(unauthorized)
	case rec.OpenAgent:
		return nil // as was asked for
	case rec.EnvdToken == "":
		return errors.New(unauthorized)
	case shown != "":
		if !same(shown, rec.EnvdToken) {
			return errors.New(unauthorized)
		}
		return nil
	case r.URL.Path == "/files":
		return filesign.Check(r.URL.Query(), opOf(r), rec.EnvdToken, e.h.opt.Now())
	}
	return errors.New(unauthorized)
}

func opOf(r *http.Request) filesign.Op {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return filesign.Read
	}
	return filesign.Write
}

// same compares digests, so that neither content nor length shows in the time it takes.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// serveSigned serves a URL of a file without anything that says which sandbox it is for: it is
// for the one whose token it was signed with.
func (h *Handler) serveSigned(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions {
		preflight(w)
		return
	}
	id, err := h.signer(r)
	if err != nil {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		writeJSON(w, http.StatusUnauthorized, failf(http.StatusUnauthorized, "%s", err.Error()))
		return
	}
	h.serveSandbox(w, r, target.Port(id, target.EnvdPort))
}

// signer finds the sandbox whose token a URL was signed with, or that was shown. It copies no
// record: the sender is a stranger until then.
func (h *Handler) signer(r *http.Request) (string, error) {
	if shown := r.Header.Get(headerToken); shown != "" {
		if id, ok := h.opt.Records.Find(func(token string) bool { return same(shown, token) }); ok {
			return id, nil
		}
		return "", filesign.ErrWrong
	}
	v, err := filesign.NewVerifier(r.URL.Query(), opOf(r))
	if err != nil {
		return "", err
	}
	id, ok := h.opt.Records.Find(v.Signed)
	if !ok {
		return "", filesign.ErrWrong
	}
	return id, v.Expired(h.opt.Now())
}

// rewriteForAgent passes on what is for the agent, which acts on files as envd does: as root,
// and gives what it makes to the user.
func rewriteForAgent(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = "http", targetOf(p.In.Context()).ID
	p.Out.Host = "agent"
	for _, name := range []string{headerToken, target.HeaderSandbox, target.HeaderPort, "E2b-Traffic-Access-Token",
		agentproto.HeaderAsRoot, agentproto.HeaderKillOnDisconnect, "X-Api-Key", "Cookie"} {
		p.Out.Header.Del(name)
	}
	p.Out.Header.Set(agentproto.HeaderHostTime, agentproto.HostTime())
	if _, _, basic := p.In.BasicAuth(); !basic {
		p.Out.Header.Del("Authorization")
	}
	if p.In.URL.Path == "/files" || strings.HasPrefix(p.In.URL.Path, "/"+filesystemconnect.FilesystemName+"/") {
		p.Out.Header.Set(agentproto.HeaderAsRoot, "1")
	}
	q := p.Out.URL.Query()
	q.Del("signature")
	q.Del("signature_expiration")
	q.Del("mode") // ours
	p.Out.URL.RawQuery = q.Encode()
}

// openToAll is CORS as envd has it; a guest's answer acts in nobody's name.
func openToAll(resp *http.Response) error {
	if err := guard.Proxied(resp); err != nil {
		return err
	}
	resp.Header.Set("Access-Control-Allow-Origin", "*")
	resp.Header.Set("X-Content-Type-Options", "nosniff")
	resp.Header.Set("Content-Security-Policy", "sandbox")
	return nil
}

// preflightHeaders are the request headers of E2B's clients in browsers. No page may send others.
const preflightHeaders = "Authorization, Connect-Accept-Encoding, Connect-Content-Encoding, " +
	"Connect-Protocol-Version, Connect-Timeout-Ms, Content-Encoding, Content-Type, E2b-Sandbox-Id, " +
	"E2b-Sandbox-Port, E2B-Traffic-Access-Token, Keepalive-Ping-Interval, Range, X-Access-Token, X-User-Agent"

// preflight answers a browser that asks whether a page may send a request. Any page may, as with E2B, but
// without cookies: the token that the page has to show is what opens the agent.
func preflight(w http.ResponseWriter) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
	w.Header().Set("Access-Control-Allow-Headers", preflightHeaders)
	w.Header().Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
}

// broken answers for an agent that could not be reached, or broke off before it answered. One
// that breaks off later has its answer cut off, by which clients know that it is gone.
func (e *envd) broken(w http.ResponseWriter, r *http.Request, err error) {
	to := targetOf(r.Context())
	if silent := iodeadline.Silence(r.Context()); silent != nil {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		writeJSON(w, http.StatusRequestTimeout, failf(http.StatusRequestTimeout, "%v", silent))
		return
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody is there to read an answer
	}
	e.h.opt.Log.Debug("request to an agent", "sandbox", to.ID, "error", err)
	if gone := e.h.awake(r.Context(), to.ID); gone != nil {
		err = gone
	}
	e.h.refuseSandbox(w, to, err)
}
