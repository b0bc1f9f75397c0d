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
	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
	"github.com/forkd/forkd/internal/guest/agentproto/guard"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
	"github.com/forkd/forkd/internal/leaf/earlyanswer"
)

// unauthorized is E2B's text, which clients know.
const unauthorized = "unauthorized access, please provide a valid access token or method signing if supported"

const headerToken = "X-Access-Token"

// envd serves the sandbox's agent in the form of E2B's daemon in the guest, after a check of the
// sandbox's token.
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
		FlushInterval:  -1, // flush each message
		ModifyResponse: openToAll,
		ErrorLog:       slog.NewLogLogger(h.opt.Log.Handler(), slog.LevelDebug),
		ErrorHandler:   e.broken,
	}
	return e
}

// agentTransport dials agents by the sandbox's ID, which is the host of the URL. It does not keep
// connections, because an idle one would be captured in a snapshot.
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

// targetKey is the context key for a request's target.
type targetKey struct{}

func targetOf(ctx context.Context) target.Target {
	t, _ := ctx.Value(targetKey{}).(target.Target)
	return t
}

// serve forwards a request to the agent of a running sandbox.
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
	// The agent may answer before it has read the whole request, because input streams as long as a
	// process lives.
	w = earlyanswer.Allow(w, r)
	e.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, to)))
}

// isEnvdPath reports whether a path is for clients. The agent's other routes are for its host.
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

// admit checks a request against the sandbox's record. A sandbox is closed unless its record says
// that it is open. A sandbox without a record or without a token refuses every request.
func (e *envd) admit(r *http.Request, id string) error {
	rec, ok := e.h.opt.Records.Get(id)
	switch shown := r.Header.Get(headerToken); {
	case !ok:
		return errors.New(unauthorized)
	case rec.OpenAgent:
		return nil // as requested
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

// same compares digests, to make the time independent of content and length.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// serveSigned serves a file's URL that does not name a sandbox. The sandbox is the one with the
// token that signed the URL.
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

// signer returns the sandbox with the token that signed the URL, or that the request shows. It
// copies no record, because the sender is not authenticated yet.
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

// rewriteForAgent prepares a request for the agent. The agent acts on files like envd: as root, and
// new files belong to the user.
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

// openToAll sets CORS headers like envd. A guest's answer cannot act in the name of any
// site.
func openToAll(resp *http.Response) error {
	if err := guard.Proxied(resp); err != nil {
		return err
	}
	resp.Header.Set("Access-Control-Allow-Origin", "*")
	resp.Header.Set("X-Content-Type-Options", "nosniff")
	resp.Header.Set("Content-Security-Policy", "sandbox")
	resp.Header.Del(headerError) // only the daemon sets these
	resp.Header.Del(headerMovedTo)
	return nil
}

// preflightHeaders are the request headers of E2B's clients in browsers. Pages cannot send other
// headers.
const preflightHeaders = "Authorization, Connect-Accept-Encoding, Connect-Content-Encoding, " +
	"Connect-Protocol-Version, Connect-Timeout-Ms, Content-Encoding, Content-Type, E2b-Sandbox-Id, " +
	"E2b-Sandbox-Port, E2B-Traffic-Access-Token, Keepalive-Ping-Interval, Range, X-Access-Token, X-User-Agent"

// preflight answers a browser's preflight request. Any page may send requests, as with E2B, but
// without cookies. The page needs the token to open the agent.
func preflight(w http.ResponseWriter) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
	w.Header().Set("Access-Control-Allow-Headers", preflightHeaders)
	w.Header().Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
}

// broken answers for an agent that could not be reached, or that broke off before its answer. If it
// breaks off later, the answer is cut off, and clients conclude that the agent has ended.
func (e *envd) broken(w http.ResponseWriter, r *http.Request, err error) {
	to := targetOf(r.Context())
	if silent := iodeadline.Silence(r.Context()); silent != nil {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		writeJSON(w, http.StatusRequestTimeout, failf(http.StatusRequestTimeout, "%v", silent))
		return
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has disconnected
	}
	e.h.opt.Log.Debug("request to an agent", "sandbox", to.ID, "error", err)
	if gone := e.h.awake(r.Context(), to.ID); gone != nil {
		err = gone
	}
	e.h.refuseSandbox(w, to, err)
}
