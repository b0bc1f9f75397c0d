package e2bapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/e2bapi/records"
	"github.com/forkd/forkd/internal/e2bapi/target"
	"github.com/forkd/forkd/internal/sandbox"
)

// isControl tells paths of the control API from those of the native one, which has /v1,
// /healthz, /version, /metrics and /openapi.json.
func isControl(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "sandboxes", "templates", "snapshots", "volumes", "secrets", "teams", "api-keys", "v2", "v3", "volumecontent":
		return true
	case "health", "files":
		return path == "/"+first
	}
	return false
}

// call is a request to the control API whose sender is known.
type call struct {
	*http.Request
	ctx  context.Context
	w    http.ResponseWriter
	body []byte
	// owner is the sender's tenant.
	owner string
}

type answer struct {
	status int
	body   any // nil: none
}

// controlRoutes are all routes. Their patterns match escaped segments: a template's id may
// have a slash in it.
func (h *Handler) controlRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	many, life, snaps, use, made := listing{h}, lives{h}, snapshots{h}, usage{h}, builds{h}
	for pattern, f := range map[string]func(call) (answer, error){
		"POST /sandboxes":        func(c call) (answer, error) { return h.create(c, 1) },
		"POST /v2/sandboxes":     func(c call) (answer, error) { return h.create(c, 2) },
		"GET /sandboxes":         many.listRunning,
		"GET /v2/sandboxes":      many.list,
		"GET /sandboxes/{id}":    h.info,
		"DELETE /sandboxes/{id}": life.kill,

		"POST /sandboxes/{id}/connect":    func(c call) (answer, error) { return life.connect(c, 1) },
		"POST /v2/sandboxes/{id}/connect": func(c call) (answer, error) { return life.connect(c, 2) },
		"POST /sandboxes/{id}/resume":     life.resume,
		"POST /sandboxes/{id}/pause":      life.pause,
		"POST /sandboxes/{id}/timeout":    life.setTimeout,
		"POST /sandboxes/{id}/refreshes":  life.refresh,
		"POST /sandboxes/{id}/snapshots":  snaps.snapshot,
		"POST /sandboxes/{id}/fork":       snaps.fork,
		"PUT /sandboxes/{id}/network":     h.setNetwork,
		"GET /sandboxes/{id}/metrics":     use.metrics,
		"GET /sandboxes/metrics":          use.metricsOfMany,
		"GET /sandboxes/{id}/logs":        use.logs,
		"GET /v2/sandboxes/{id}/logs":     use.logsV2,

		"GET /snapshots":             snaps.listSnapshots,
		"GET /templates":             snaps.listTemplates,
		"GET /v2/templates":          snaps.listTemplates,
		"GET /templates/{id}":        snaps.template,
		"DELETE /templates/{id}":     snaps.deleteTemplate,
		"GET /templates/{id}/{part}": snaps.templatePart,

		"POST /v3/templates":                        made.able(made.request),
		"POST /v2/templates":                        made.able(made.request),
		"POST /v2/templates/{id}/builds/{build}":    made.able(made.start),
		"GET /templates/{id}/builds/{build}/status": made.able(made.status),
		"GET /templates/{id}/builds/{build}/logs":   made.able(made.logs),
		"GET /templates/{id}/files/{hash}":          made.able(made.uploadLink),
		"POST /templates/tags":                      made.able(made.assignTags),
		"DELETE /templates/tags":                    made.able(made.removeTags),
	} {
		mux.HandleFunc(pattern, h.route(f))
	}
	for pattern, what := range map[string]string{
		"POST /templates":          "building templates from a Dockerfile that the client has built",
		"PATCH /v2/templates/{id}": "changing templates", "PATCH /templates/{id}": "changing templates",
		"/volumes": "volumes", "/volumes/": "volumes", "/volumecontent/": "volumes",
		"/secrets": "secrets", "/secrets/": "secrets", "/teams": "teams", "/teams/": "teams",
		"/api-keys": "managing keys by E2B's API", "/api-keys/": "managing keys by E2B's API",
	} {
		mux.HandleFunc(pattern, h.route(func(call) (answer, error) { return answer{}, notYet(what) }))
	}
	mux.HandleFunc("PUT /templates/{id}/files/{hash}", made.upload)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
	})
	return mux
}

// serveControl finds the route. The mux's own answers are no JSON.
func (h *Handler) serveControl(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.EscapedPath(), "//") {
		writeError(w, failf(http.StatusNotFound, "there is no such route"))
		return
	}
	if _, pattern := h.control.Handler(r); pattern == "" {
		writeError(w, failf(http.StatusNotFound, "there is no route %s %s", r.Method, sandbox.Clip(r.URL.Path)))
		return
	}
	h.control.ServeHTTP(w, r)
}

// route checks who asks, reads the body and writes the answer.
func (h *Handler) route(f func(call) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, err := h.opt.Authenticate(r)
		if err != nil {
			writeError(w, authError(err))
			return
		}
		body, err := readBody(w, r)
		if err != nil {
			writeError(w, err)
			return
		}
		a, err := f(call{Request: r, ctx: ctx, w: w, body: body, owner: h.opt.Owner(ctx)})
		switch {
		case err != nil:
			writeError(w, err)
		case a.body == nil:
			w.WriteHeader(a.status)
		default:
			writeJSON(w, a.status, a.body)
		}
	}
}

// known is a sandbox and what is recorded of it.
type known struct {
	info   sandbox.Info
	rec    records.Record
	exists bool // the record
}

// find finds the sandbox of a request. Another tenant's is not there.
func (h *Handler) find(c call) (known, error) { return h.findID(c, target.ID(c.PathValue("id"))) }

func (h *Handler) findID(c call, id string) (known, error) {
	info, err := h.opt.Engine.Get(id)
	if err != nil && !isNotFound(err) {
		return known{}, err
	}
	rec, exists := h.opt.Records.Get(id)
	if exists && err != nil {
		h.forget(id) // it ended by other ways than ours
	}
	if err != nil || stateOf(info) == stateGone || c.owner != "" && rec.Owner != c.owner {
		return known{}, failf(http.StatusNotFound, "sandbox %q not found", sandbox.Clip(c.PathValue("id")))
	}
	if !exists {
		rec = records.Record{ID: id, Template: info.SnapshotTag, Started: info.CreatedAt}
	}
	return known{info, rec, exists}, nil
}

// findRunning is find for what only a running sandbox can do.
func (h *Handler) findRunning(c call) (known, error) {
	k, err := h.find(c)
	if err == nil && stateOf(k.info) != stateRunning {
		err = failf(http.StatusConflict, "sandbox %s is not running", sandbox.DNSID(k.info.ID))
	}
	return k, err
}

// remember writes a known sandbox's record; one that the native API made has none before.
func (h *Handler) remember(k known) error {
	if !k.exists {
		return h.opt.Records.Put(k.rec)
	}
	// One that has ended meanwhile stays forgotten.
	_, _, err := h.opt.Records.Change(k.rec.ID, func(r *records.Record) { *r = k.rec })
	return err
}
