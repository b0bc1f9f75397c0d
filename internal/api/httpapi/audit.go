package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Audit gets an entry for each request, and never keeps one waiting; *audit.Log is one.
type Audit interface {
	Add(audit.Entry)
	Stats() audit.Stats
}

// notes is what handlers add about their request. One request has one
// goroutine that writes to it.
type notes struct {
	id                                       string
	asker                                    Asker
	principal, sandbox, snapshot, image, err string
	object, text                             string // what the request is about, beside; more words on it
	count                                    int
	act                                      Act
	// control reaches the request's connection; nil outside a server.
	control *http.ResponseController
	// routed is the request as the mux got it: that has the pattern and the path's values.
	routed *http.Request
}

type notesKey struct{}

func withNotes(ctx context.Context, n *notes) context.Context {
	return context.WithValue(ctx, notesKey{}, n)
}

// note returns the request's notes; outside a request, ones that nobody reads.
func note(ctx context.Context) *notes {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok {
		return n
	}
	return new(notes)
}

// Act is what the handler of another API tells of its request, for the audit log. It may be told in
// parts: an empty field says nothing.
type Act struct {
	Action string
	Read   bool // it changes nothing; goes with Action
	// Agent is the path of a request to a sandbox's agent, which is named as the native API's are.
	Agent string
	// Principal is how the sender proved its identity, if not by a key; Tenant owns the sandbox. Both are
	// set only after the check.
	Principal, Tenant string
	Sandbox, Snapshot string
	Error             string
	Count             int
}

// NoteAct adds to the line of a request's context. It is called by the goroutine that serves it.
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

func noteError(ctx context.Context, f *failure) { note(ctx).err = ellipsis.Clip(f.Message, 500) }

// noteAsker keeps who asks for the audit log: authorize has put that into the context.
func (s *Server) noteAsker(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := note(r.Context())
		n.asker, n.routed = s.askers.of(r.Context()), r
		next.ServeHTTP(w, r)
	})
}

// record writes a request's line, with what its path and its handler told.
func (s *Server) record(r *http.Request, n *notes, status int, took time.Duration) {
	s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", status, "took", took, "request", n.id)
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

// resultOf is what became of a request. A stream that fails on its way has a good status.
func resultOf(status int, err string) audit.Result {
	switch {
	case status >= 500, status < 400 && err != "":
		return audit.Failed
	case status >= 400:
		return audit.Refused
	}
	return audit.OK
}
