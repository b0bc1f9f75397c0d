package ingress

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/earlyanswer"
)

// DefaultDomain is a domain that browsers and systemd's resolver resolve to this host.
const DefaultDomain = "forkd.localhost"

// Guard returns the access rules of ports.
type Guard interface {
	// PortAccess returns the rule for requests to a port of a sandbox. If it returns an error, the
	// request is refused with the same error.
	PortAccess(id string, port uint16) (sandbox.PortAccess, error)
}

// Config holds the settings of a Handler.
type Config struct {
	// Domain is the domain of host names. If empty, there are no routes, not even by headers.
	Domain string
	// Dialer connects to the ports of sandboxes.
	Dialer sandbox.PortDialer
	// Guard admits requests. If nil, every request is refused.
	Guard Guard
	// Wake is called when a sandbox could not be dialled. It may resume a paused sandbox, and
	// reports whether another attempt is useful. May be nil.
	Wake func(ctx context.Context, id string, cause error) (bool, error)
	// Ended returns the reason why a sandbox does not run after its server broke off, or nil if it
	// runs. Ended may be nil.
	Ended func(id string) error
	// Log receives errors of this package. If nil, they are discarded.
	Log *slog.Logger
}

// Handler serves requests to sandboxes.
type Handler struct {
	cfg   Config
	proxy *httputil.ReverseProxy
	// plain uses HTTP/1.1 to guests, h2c HTTP/2 without TLS.
	plain, h2c *http.Transport
}

// New returns a Handler.
func New(cfg Config) *Handler {
	cfg.Domain = strings.ToLower(strings.Trim(cfg.Domain, "."))
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{cfg: cfg}
	h.plain, h.h2c = h.transport(), h.transport()
	h.h2c.Protocols = new(http.Protocols)
	h.h2c.Protocols.SetUnencryptedHTTP2(true)
	h.h2c.Protocols.SetHTTP2(true)
	h.proxy = h.reverseProxy()
	return h
}

// Match reports whether a request is for a sandbox, even if it names none correctly. All other
// requests are for the API.
func (h *Handler) Match(r *http.Request) bool {
	if h.cfg.Domain == "" {
		return false
	}
	_, err := route(r, h.cfg.Domain)
	return !errors.Is(err, errNone)
}

// Sandbox returns the sandbox a request names, or "".
func (h *Handler) Sandbox(r *http.Request) string {
	t, _ := route(r, h.cfg.Domain)
	return t.Sandbox
}

// ServeHTTP forwards a matching request to its sandbox.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, err := route(r, h.cfg.Domain)
	if err != nil {
		refuse(w, r, Target{}, err)
		return
	}
	h.serve(w, r, to)
}

// ServePort forwards a request to a port the caller has determined. shown is the sandbox's ID in
// the client's form. If it is not empty, refusals contain it, and only E2B's fields. If overTLS is set, the server is
// reached over TLS. Its certificate is not checked: the way to the guest is the daemon's own.
func (h *Handler) ServePort(w http.ResponseWriter, r *http.Request, id, shown string, port uint16, overTLS bool) {
	h.serve(w, r.WithContext(context.WithValue(r.Context(), shownKey{}, shown)), Target{id, port, overTLS})
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, to Target) {
	if err := h.admit(r, to); err != nil {
		refuse(w, r, to, err)
		return
	}
	// A server may answer before it has read the whole request.
	w = earlyanswer.Allow(w, r)
	h.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, to)))
}

// shownKey is the context key for a sandbox's ID in the client's form.
type shownKey struct{}

// targetKey is the context key for a request's Target.
type targetKey struct{}

func targetOf(ctx context.Context) Target {
	t, _ := ctx.Value(targetKey{}).(Target)
	return t
}
