package e2bapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/api/e2bapi/target"
	"github.com/forkd/forkd/internal/api/e2bapi/volumefiles"
	"github.com/forkd/forkd/internal/api/idempotency"
)

// Handler serves E2B's clients.
type Handler struct {
	uploadSizes
	opt     Options
	control *http.ServeMux
	envd    *envd
	leases  *leases // nil if the engine keeps deadlines itself
	repeats idempotency.Cache[createdSandbox]
	history history
	ends    turns          // for changes of sandboxes' ends
	builder *build.Builder // if nil, templates cannot be built
	files   *volumefiles.Access
	tokens  *volumefiles.Tokens // for files of volumes

	// buildMu guards building: templates with a snapshot in progress.
	buildMu  sync.Mutex
	building map[templateOf]*baseBuild
}

// New returns a Handler. Deadlines are kept only while Run runs.
func New(opt Options) *Handler {
	h := &Handler{uploadSizes: uploadSizes{opt.Builds}, opt: opt.complete(), building: map[templateOf]*baseBuild{},
		tokens: volumefiles.NewTokens()}
	h.files = volumefiles.New(h.opt.Volumes)
	if h.opt.Lives == nil {
		h.leases = newLeases(h)
		h.opt.Lives = h.leases
	}
	h.builder = newBuilder(h)
	h.control = h.controlRoutes()
	h.envd = newEnvd(h)
	return h
}

// sweepEvery is the interval at which records of sandboxes are removed that did not end through
// this API.
const sweepEvery = time.Minute

// Run removes the records of sandboxes that have ended by a deadline or while no daemon ran, until
// ctx ends. Without Lives it also keeps the deadlines. Builds of templates end with it.
func (h *Handler) Run(ctx context.Context) {
	if h.builder != nil {
		var building sync.WaitGroup
		building.Go(func() { h.builder.Run(ctx) })
		defer building.Wait()
	}
	h.sweep()
	if h.leases != nil {
		h.leases.run(ctx)
		return
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.sweep()
		}
	}
}

// sweep removes the records of ended sandboxes.
func (h *Handler) sweep() {
	for _, r := range h.opt.Records.All() {
		h.forgetGone(r.ID)
	}
}

// forgetGone removes the record of an ID if no owner has such a sandbox.
func (h *Handler) forgetGone(id string) {
	if _, err := h.opt.Engine.Get(id); isNotFound(err) {
		h.forget(id)
	}
}

// forget removes all facts about an ended sandbox.
func (h *Handler) forget(id string) {
	h.history.forget(id)
	if h.leases != nil {
		h.leases.forget(id)
	}
	if err := h.opt.Records.Remove(id); err != nil {
		h.opt.Log.Warn("forget sandbox of E2B's API", "sandbox", id, "error", err)
	}
}

// Match reports whether a request is for a sandbox or for the control API. It reads only Host,
// headers and path.
func (h *Handler) Match(r *http.Request) bool {
	_, err := target.Of(r, h.opt.Domain)
	return !errors.Is(err, target.ErrNone) || isControl(r.URL.Path)
}

// Sandbox returns the sandbox a request names, or "".
func (h *Handler) Sandbox(r *http.Request) string {
	if to, err := target.Of(r, h.opt.Domain); err == nil {
		return to.ID
	}
	if parts := strings.Split(r.URL.Path, "/"); len(parts) > 2 {
		for i, p := range parts[:len(parts)-1] {
			if p == "sandboxes" && i <= 2 {
				return target.ID(parts[i+1])
			}
		}
	}
	return ""
}

// ServeHTTP serves a matching request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, err := target.Of(r, h.opt.Domain)
	switch {
	case err == nil:
		h.serveSandbox(w, r, to)
	case errors.Is(err, target.ErrNone) && r.URL.Path == "/files":
		h.serveSigned(w, r)
	case errors.Is(err, target.ErrNone):
		h.serveControl(w, r)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// serveSandbox serves a request to a port of a sandbox.
func (h *Handler) serveSandbox(w http.ResponseWriter, r *http.Request, to target.Target) {
	rec, ours := h.opt.Records.Get(to.ID)
	err := roused(h, r, to)
	switch {
	case err == nil && to.Port == target.EnvdPort:
		h.noteAgent(r, to)
		h.envd.serve(w, r, to)
		return
	case err != nil && (ours || to.Port == target.EnvdPort) && !wantsPage(r):
		h.refuseSandbox(w, to, err)
		return
	}
	if rec.MaskHost != "" {
		r.Host = maskedHost(rec.MaskHost, to.Port)
	}
	shown := to.Shown
	if !ours && !isNotFound(err) {
		shown = "" // a sandbox of the native API, which has better errors
	}
	h.opt.Ports.ServePort(w, r, to.ID, shown, to.Port, slices.Contains(rec.HTTPSPorts, to.Port))
}

// wantsPage reports whether the client is a browser. Browsers get an error page for people.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
