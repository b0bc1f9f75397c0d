package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

// Audit receives an entry for each request. It must never block. *audit.Log implements it.
type Audit interface {
	Add(audit.Entry)
	Stats() audit.Stats
}

// notes holds facts handlers add about their request. Only one goroutine writes the notes of a
// request.
type notes struct {
	id                                       string
	asker                                    Asker
	trace                                    tracecontext.Context
	principal, sandbox, snapshot, image, err string
	object, text                             string // the request's object without a field of its own; more words on it
	count                                    int
	reason                                   api.Reason // of the error
	act                                      Act
	// control controls the request's connection. It is nil outside a server.
	control *http.ResponseController
	// routed is the request in the form of the mux, with the pattern and the values of the path.
	routed *http.Request
}

type notesKey struct{}

func withNotes(ctx context.Context, n *notes) context.Context {
	return context.WithValue(ctx, notesKey{}, n)
}

// note returns the request's notes. Outside a request it returns unused notes.
func note(ctx context.Context) *notes {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok {
		return n
	}
	return new(notes)
}

// Act is the audit information from a handler of another API. A handler may send it in parts: empty
// fields change nothing.
type Act struct {
	Action string // replaces the route's action, unless empty
	Read   bool   // it changes nothing; used with Action
	// Agent is the path of a request to a sandbox's agent. The native API's names apply to it.
	Agent string
	// Principal is the sender's proof of identity, unless it was a key. Tenant is the owner of the
	// sandbox. Both are set only after the check.
	Principal, Tenant string
	// Sandbox is an ID and Snapshot a tag: the request's objects, clipped to 500 bytes.
	Sandbox, Snapshot string
	Error             string // message of the failure, clipped to 500 bytes
	Count             int    // requested sandboxes; the maximum of all parts
}

// NoteAct adds to the audit line of a request's context. Only the goroutine that serves the request
// may call it.
func NoteAct(ctx context.Context, a Act) {
	n := note(ctx)
	if a.Action != "" {
		n.act.Action, n.act.Read = a.Action, a.Read
	}
	for _, f := range []struct{ to, from *string }{{&n.act.Agent, &a.Agent}, {&n.principal, &a.Principal},
		{&n.asker.Tenant, &a.Tenant}, {&n.sandbox, &a.Sandbox}, {&n.snapshot, &a.Snapshot}, {&n.err, &a.Error}} {
		if *f.from != "" {
			*f.to = ellipsis.Clip(*f.from, 500)
		}
	}
	n.count = max(n.count, a.Count)
}

func noteError(ctx context.Context, f *apierror.Error) {
	n := note(ctx)
	n.err, n.reason = ellipsis.Clip(f.Message, 500), f.Reason
}

// noteAsker records the request's sender for the audit log. authorize has put the sender into the
// context.
func (s *Server) noteAsker(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := note(r.Context())
		n.asker, n.routed = s.askers.of(r.Context()), r
		next.ServeHTTP(w, r)
	})
}

// record writes a request's audit line, with facts from its path and its handler.
func (s *Server) record(r *http.Request, n *notes, status int, took time.Duration) {
	s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", status, "took", took, n.ids())
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
	case n.act.Agent != "":
		did = s.router.agentAction(r.Method, strings.TrimPrefix(n.act.Agent, "/"))
	case n.act.Action != "":
		did = action{name: n.act.Action, read: n.act.Read}
	}
	e := audit.Entry{
		Action: did.name, Read: did.read, Object: did.object(r), Result: resultOf(status, n.err), Request: n.id,
		Key: n.asker.Key, KeyName: n.asker.Name, Tenant: n.asker.Tenant,
		Method: r.Method, Path: r.URL.Path, Status: status, LatencyUS: took.Microseconds(),
		UserAgent: r.UserAgent(), Principal: n.principal,
		Sandbox: pick(n.sandbox, "id"), Snapshot: pick(n.snapshot, "tag"), Image: pick(n.image, "name"),
		Count: n.count, Error: n.err,
	}
	if n.object != "" {
		e.Object, e.Note = n.object, n.text
	}
	if !n.proved() {
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
