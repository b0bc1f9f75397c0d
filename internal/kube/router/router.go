package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Headers of a request. X-Sandbox-Pod-IP is ignored: with it, a caller could name any address.
const (
	headerID        = "X-Sandbox-Id"
	headerNamespace = "X-Sandbox-Namespace"
	headerPort      = "X-Sandbox-Port"
	headerUID       = "X-Sandbox-Uid"
	headerTimeout   = "X-Sandbox-Timeout"
)

// runtimePort is the port of agent-sandbox's old runtime API, and that of a request without a port.
const runtimePort = 8888

// longest is the longest time of a request, and that of one without X-Sandbox-Timeout.
const longest = 24 * time.Hour

// Config are the settings of a router.
type Config struct {
	// Gateway serves requests without the headers, and requests to ports of sandboxes.
	Gateway http.Handler
	// Forkd is a client of the gateway, with the key of the router.
	Forkd *client.Client
	// Allowed returns nil if the caller may use the sandboxes of a namespace, otherwise a *Refusal. If it is nil, everyone
	// may.
	Allowed func(ctx context.Context, r *http.Request, namespace string) error
	// MaxRequests is the number of requests served at the same time. Default 1024.
	MaxRequests int
	// Log receives messages. If nil, they are discarded.
	Log *slog.Logger
}

// Router is a handler for agent-sandbox's clients.
type Router struct {
	cfg   Config
	found found
	turns chan struct{}
}

// New returns a router.
func New(c Config) *Router {
	if c.MaxRequests <= 0 {
		c.MaxRequests = 1024
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Router{cfg: c, found: found{forkd: c.Forkd, byName: map[target]entry{}}, turns: make(chan struct{},
		c.MaxRequests)}
}

// Refusal is an answer to a request that is not served.
type Refusal struct {
	// Status is the HTTP status, Detail the text for the caller.
	Status int
	// Detail describes the reason.
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }

func refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

// target is the sandbox in a request's headers.
type target struct{ namespace, name, uid string }

// ServeHTTP serves one request.
func (s *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(headerID) == "" || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
		s.cfg.Gateway.ServeHTTP(w, r)
		return
	}
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	default:
		answer(w, refuse(http.StatusServiceUnavailable, "the router serves %d requests already", s.cfg.MaxRequests))
		return
	}
	if err := s.serve(w, r); err != nil {
		answer(w, err)
	}
}

// answer sends an error in the router's format.
func answer(w http.ResponseWriter, err error) {
	refusal := refuse(http.StatusBadGateway, "%v", err)
	_ = errors.As(err, &refusal)
	w.Header().Set("Connection", "close") // the rest of the body is not read
	writeJSON(w, refusal.Status, map[string]string{"detail": refusal.Detail})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// serve serves a request with headers.
func (s *Router) serve(w http.ResponseWriter, r *http.Request) error {
	to, port, limit, err := parse(r.Header)
	if err != nil {
		return err
	}
	if s.cfg.Allowed != nil {
		if err := s.cfg.Allowed(r.Context(), r, to.namespace); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), limit, refuse(http.StatusGatewayTimeout,
		"X-Sandbox-Timeout is over"))
	defer cancel()
	sb, err := s.found.of(ctx, to)
	if err != nil {
		return failure(ctx, err)
	}
	r = r.WithContext(ctx)
	if port == runtimePort {
		if call := runtimeCall(r); call != nil && !s.listens(ctx, sb.ID, port) {
			if err := call(runtime{s.cfg.Forkd, sb.ID, &s.found}, w, r); err != nil {
				return failure(ctx, err)
			}
			return nil
		}
	}
	s.forward(w, r, sb, port)
	return nil
}

// listens reports whether a server in the sandbox accepts connections at a port.
func (s *Router) listens(ctx context.Context, id string, port uint16) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := s.cfg.Forkd.DialPort(ctx, id, port)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// failure describes an error of forkd to the caller.
func failure(ctx context.Context, err error) error {
	if refusal := new(Refusal); errors.As(err, &refusal) || errors.As(context.Cause(ctx), &refusal) {
		return refusal
	}
	switch client.CodeOf(err) {
	case api.CodeNotFound:
		return refuse(http.StatusNotFound, "%v", err)
	case api.CodeInvalid:
		return refuse(http.StatusBadRequest, "%v", err)
	case api.CodeTooLarge:
		return refuse(http.StatusRequestEntityTooLarge, "%v", err)
	case api.CodeTimeout:
		return refuse(http.StatusGatewayTimeout, "%v", err)
	case api.CodeBusy, api.CodeNoSpace:
		return refuse(http.StatusServiceUnavailable, "%v", err)
	}
	return refuse(http.StatusBadGateway, "%v", err)
}

var (
	dnsLabel     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	dnsSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	objectUID    = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
)

// parse reads the headers.
func parse(h http.Header) (to target, port uint16, limit time.Duration, err error) {
	to = target{namespace: h.Get(headerNamespace), name: h.Get(headerID), uid: h.Get(headerUID)}
	if to.namespace == "" {
		to.namespace = "default"
	}
	switch {
	case len(to.name) > 253 || !dnsSubdomain.MatchString(to.name):
		return to, 0, 0, refuse(http.StatusBadRequest, "%s is no name of a Sandbox", headerID)
	case !dnsLabel.MatchString(to.namespace):
		return to, 0, 0, refuse(http.StatusBadRequest, "%s is no name of a namespace", headerNamespace)
	case to.uid != "" && !objectUID.MatchString(to.uid):
		return to, 0, 0, refuse(http.StatusBadRequest, "%s is no UID", headerUID)
	}
	port, limit = runtimePort, longest
	if text := h.Get(headerPort); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return to, 0, 0, refuse(http.StatusBadRequest, "%s: want 1 to 65535", headerPort)
		}
		port = uint16(n)
	}
	if text := h.Get(headerTimeout); text != "" {
		secs, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(secs) || secs <= 0 {
			return to, 0, 0, refuse(http.StatusBadRequest, "%s: want seconds above 0", headerTimeout)
		}
		limit = time.Duration(min(secs, longest.Seconds()) * float64(time.Second))
	}
	return to, port, limit, nil
}

// forward sends a request to a server in the sandbox, without the caller's credential.
func (s *Router) forward(w http.ResponseWriter, r *http.Request, sb api.SandboxInfo, port uint16) {
	r = r.Clone(r.Context())
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Sandbox-") || strings.HasPrefix(name, "E2b-") || strings.HasPrefix(name, "Forkd-") {
			delete(r.Header, name)
		}
	}
	r.Header.Del("Authorization")
	r.Header.Set("E2b-Sandbox-Id", sandbox.DNSID(sb.ID))
	r.Header.Set("E2b-Sandbox-Port", strconv.Itoa(int(port)))
	if sb.TrafficToken != "" {
		r.Header.Set("Forkd-Access-Token", sb.TrafficToken)
	}
	s.cfg.Gateway.ServeHTTP(&detailed{ResponseWriter: w}, r)
}

// detailed gives errors of forkd the router's format. Errors of servers in sandboxes pass unchanged: forkd removes the
// header from their answers.
type detailed struct {
	http.ResponseWriter
	replaced bool
}

// WriteHeader implements http.ResponseWriter.
func (d *detailed) WriteHeader(status int) {
	kind := d.Header().Get(api.HeaderError)
	if kind == "" {
		d.ResponseWriter.WriteHeader(status)
		return
	}
	d.replaced = true
	for _, name := range []string{api.HeaderError, "Content-Length", "Content-Encoding", "Transfer-Encoding"} {
		d.Header().Del(name)
	}
	if status == http.StatusNotFound || status == http.StatusUnauthorized || status == http.StatusForbidden {
		status = http.StatusBadGateway // about the sandbox, not about a path in it, and not about the caller
	}
	writeJSON(d.ResponseWriter, status, map[string]string{"detail": "the sandbox cannot be reached: " + kind})
}

// Write implements io.Writer.
func (d *detailed) Write(b []byte) (int, error) {
	if d.replaced {
		return len(b), nil
	}
	return d.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController access to the other methods.
func (d *detailed) Unwrap() http.ResponseWriter { return d.ResponseWriter }
