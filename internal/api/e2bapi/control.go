package e2bapi

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/e2bapi/target"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// isControl distinguishes paths of the control API from paths of the native API: /v1, /healthz, /readyz,
// /version, /metrics and /openapi.json.
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

// call is a request to the control API with an authenticated sender.
type call struct {
	*http.Request
	ctx  context.Context
	w    http.ResponseWriter
	body []byte
	// engine is the engine as the sender may see it.
	engine Engine
	who    principal.Principal
	log    *slog.Logger
}

type answer struct {
	status int
	body   any // if nil, the answer has no body
}

// serveControl finds the route. It replaces the mux's own answers, which are not JSON.
func (h *Handler) serveControl(w http.ResponseWriter, r *http.Request) {
	if h.opt.CORS.Handle(w, r) {
		return
	}
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

// known is a sandbox with its record.
type known struct {
	info   sandbox.Info
	rec    records.Record
	exists bool // the record exists
}

// find returns the sandbox of a request. Another tenant's sandbox is not found.
func (h *Handler) find(c call) (known, error) { return h.findID(c, target.ID(c.PathValue("id"))) }

func (h *Handler) findID(c call, id string) (known, error) {
	info, err := c.engine.Get(id)
	if err != nil && !isNotFound(err) {
		return known{}, err
	}
	rec, exists := h.opt.Records.Get(id)
	if exists && err != nil {
		h.forgetGone(id) // it did not end through this API
	}
	if err != nil || stateOf(info) == stateGone {
		missing := failf(http.StatusNotFound, "sandbox %q not found", sandbox.Clip(c.PathValue("id")))
		missing.movedTo = sandbox.MovedTo(err)
		return known{}, missing
	}
	return knownOf(h, info, rec, exists), nil
}

// knownOf returns a sandbox with its record, or with a minimal record. The engine decides the end
// of a running sandbox, because any request may have resumed it.
func knownOf(h *Handler, info sandbox.Info, rec records.Record, exists bool) known {
	if !exists {
		rec = records.Record{ID: info.ID, Template: info.SnapshotTag, Started: info.CreatedAt, Metadata: info.Labels}
	}
	if h.leases == nil && stateOf(info) == stateRunning {
		rec.End = info.Life.Deadline
	}
	return known{info, rec, exists}
}

// findRunning is find for operations that need a running sandbox.
func (h *Handler) findRunning(c call) (known, error) {
	k, err := h.find(c)
	if err == nil {
		k.info, err = settled(h, c, k.info)
	}
	if err == nil && stateOf(k.info) != stateRunning {
		err = failf(http.StatusConflict, "sandbox %s is not running", sandbox.DNSID(k.info.ID))
	}
	return k, err
}

// settled waits for a sandbox being paused or resumed, and returns its new state.
func settled(h *Handler, c call, i sandbox.Info) (sandbox.Info, error) {
	if !i.InTransition() {
		return i, nil
	}
	if err := h.opt.Lives.Settle(c.ctx, i.ID); err != nil {
		return i, err
	}
	return c.engine.Get(i.ID)
}

// remember writes the record of a known sandbox. A sandbox of the native API has no record until
// then. A closed agent without a token gets one, which connect returns.
func (h *Handler) remember(k *known) error {
	rec, err := h.opt.Records.Settle(k.rec, !k.exists, newToken)
	k.rec = rec
	return err
}
