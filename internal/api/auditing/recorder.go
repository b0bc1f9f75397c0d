// Package auditing writes the audit line of each request: its action by the route, its sender, its object and its result.
// A client without a proved identity gets its address and the kind of its claim. The log itself is package
// internal/domain/audit.
package auditing

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Log receives an entry for each request. It must never block. *audit.Log implements it.
type Log interface {
	Add(audit.Entry)
	Stats() audit.Stats
}

// Recorder writes the audit line of each request.
type Recorder struct {
	log  Log // may be nil
	own  *slog.Logger
	mux  *http.ServeMux
	acts map[string]action // of changing routes
	// agentActs are the actions of requests to agents.
	agentActs map[string]action
}

// NewRecorder returns a Recorder for the routes of mux. If to is nil, only the daemon's own log has the requests.
func NewRecorder(to Log, own *slog.Logger, mux *http.ServeMux) *Recorder {
	return &Recorder{log: to, own: own, mux: mux, acts: changes(), agentActs: agentActions()}
}

// Record writes a request's audit line, with facts from its path and its handler.
func (rec *Recorder) Record(r *http.Request, n *requestinfo.Info, status int, took time.Duration) {
	rec.own.Debug("request", "method", r.Method, "path", r.URL.Path, "status", status, "took", took, n.LogAttr())
	if rec.log == nil {
		return
	}
	pick := func(noted, param string) string {
		if noted != "" {
			return noted
		}
		return ellipsis.Clip(r.PathValue(param), 64)
	}
	did := rec.actionOf(r)
	switch {
	case n.Act.Agent != "":
		did = rec.agentAction(r.Method, strings.TrimPrefix(n.Act.Agent, "/"))
	case n.Act.Action != "":
		did = action{name: n.Act.Action, read: n.Act.Read}
	}
	e := audit.Entry{
		Action: did.name, Read: did.read, Object: did.object(r), Result: resultOf(status, n.Err), Request: n.ID,
		Key: n.Asker.Key, KeyName: n.Asker.Name, Tenant: n.Asker.Tenant,
		Method: r.Method, Path: r.URL.Path, Status: status, LatencyUS: took.Microseconds(),
		UserAgent: r.UserAgent(), Principal: n.Principal,
		Sandbox: pick(n.Sandbox, "id"), Snapshot: pick(n.Snapshot, "tag"), Image: pick(n.Image, "name"),
		Count: n.Count, Error: n.Err,
	}
	if n.Object != "" {
		e.Object, e.Note = n.Object, n.Text
	}
	if !n.Proved() {
		e = unproved(e, r)
	}
	rec.log.Add(e)
}

// resultOf returns the result of a request. A stream that fails midway has a success status.
func resultOf(status int, err string) audit.Result {
	switch {
	case status >= 500, status < 400 && err != "":
		return audit.Failed
	case status >= 400:
		return audit.Refused
	}
	return audit.OK
}
