package httpapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Audit receives an entry for each request. It must never block. *audit.Log implements it.
type Audit interface {
	Add(audit.Entry)
	Stats() audit.Stats
}

// noteAsker records the request's sender for the audit log. authorize has put the sender into the
// context.
func (s *Server) noteAsker(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := requestinfo.From(r.Context())
		n.Asker, n.Routed = s.askers.Of(r.Context()), r
		next.ServeHTTP(w, r)
	})
}

// record writes a request's audit line, with facts from its path and its handler.
func (s *Server) record(r *http.Request, n *requestinfo.Info, status int, took time.Duration) {
	s.answers.Log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", status, "took", took, n.LogAttr())
	if s.audit == nil {
		return
	}
	pick := func(noted, param string) string {
		if noted != "" {
			return noted
		}
		return ellipsis.Clip(r.PathValue(param), 64)
	}
	did := s.router.actionOf(r)
	switch {
	case n.Act.Agent != "":
		did = s.router.agentAction(r.Method, strings.TrimPrefix(n.Act.Agent, "/"))
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
	s.audit.Add(e)
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
