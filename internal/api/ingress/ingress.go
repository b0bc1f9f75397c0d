package ingress

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/forkd/forkd/internal/api/earlyanswer"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// DefaultDomain is one whose names browsers and systemd's resolver take for this host.
const DefaultDomain = "forkd.localhost"

// Dialer connects to servers in sandboxes. Its errors wrap package sandbox's sentinels.
type Dialer interface {
	DialPort(ctx context.Context, id string, port uint16) (net.Conn, error)
}

// Guard knows which sandboxes are private.
type Guard interface {
	// PortAccess returns the rule for requests to a port of a sandbox. A request that it returns
	// an error for is refused with that error.
	PortAccess(id string, port uint16) (sandbox.PortAccess, error)
}

// Config is what a Handler is made of.
type Config struct {
	// Domain is what host names end with. Empty: there are no routes, by headers neither.
	Domain string
	Dialer Dialer
	// Guard admits requests. If nil, every request is refused.
	Guard Guard
	// Wake is asked when a sandbox could not be dialled: it may wake one that is paused, and
	// reports whether it is worth another try. nil: nobody is woken.
	Wake func(ctx context.Context, id string, cause error) (bool, error)
	// Ended returns why a sandbox whose server broke off does not run; nil if it runs. Ended may be nil.
	Ended func(id string) error
	// Log gets what goes wrong here; nil drops it.
	Log *slog.Logger
}

// Handler serves requests to sandboxes.
type Handler struct {
	cfg   Config
	proxy *httputil.ReverseProxy
	// plain speaks HTTP/1.1 to guests, h2c HTTP/2 without TLS.
	plain, h2c *http.Transport
}

// New makes a Handler.
func New(cfg Config) *Handler {
	cfg.Domain = strings.ToLower(strings.Trim(cfg.Domain, "."))
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{cfg: cfg}
	h.plain, h.h2c = h.transport(), h.transport()
	h.h2c.Protocols = new(http.Protocols)
	h.h2c.Protocols.SetUnencryptedHTTP2(true)
	h.proxy = h.reverseProxy()
	return h
}

// Match reports whether a request is for a sandbox, or was meant to be. Everything else is
// the API's.
func (h *Handler) Match(r *http.Request) bool {
	if h.cfg.Domain == "" {
		return false
	}
	_, err := route(r, h.cfg.Domain)
	return err != errNone
}

// Sandbox is the one that a request is for, if it says so.
func (h *Handler) Sandbox(r *http.Request) string {
	t, _ := route(r, h.cfg.Domain)
	return t.Sandbox
}

// ServeHTTP passes a request that matches on to its sandbox.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, err := route(r, h.cfg.Domain)
	if err != nil {
		refuse(w, r, Target{}, err)
		return
	}
	h.serve(w, r, to)
}

// ServePort passes a request on to a port that somebody else found it to be for. shown is the
// sandbox's id as its client has it: refusals have that, and E2B's fields only, unless it is empty.
func (h *Handler) ServePort(w http.ResponseWriter, r *http.Request, id, shown string, port uint16) {
	h.serve(w, r.WithContext(context.WithValue(r.Context(), shownKey{}, shown)), Target{id, port})
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, to Target) {
	if err := h.admit(r, to); err != nil {
		refuse(w, r, to, err)
		return
	}
	// A server may answer before it has read all of the request.
	w = earlyanswer.Allow(w, r)
	h.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, to)))
}

// shownKey is where it has a sandbox's id as its client has it.
type shownKey struct{}

// targetKey is where a request's context has its Target.
type targetKey struct{}

func targetOf(ctx context.Context) Target {
	t, _ := ctx.Value(targetKey{}).(Target)
	return t
}
