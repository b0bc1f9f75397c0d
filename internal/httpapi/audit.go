package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/audit"
	"github.com/forkd/forkd/internal/ellipsis"
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
	count                                    int
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
	s.audit.Add(audit.Entry{
		Action: did.name, Read: did.read, Object: did.object(r), Result: resultOf(status, n.err), Request: n.id,
		Key: n.asker.Key, KeyName: n.asker.Name, Tenant: n.asker.Tenant,
		Method: r.Method, Path: r.URL.Path, Status: status, LatencyUS: took.Microseconds(),
		UserAgent: r.UserAgent(), Principal: n.principal,
		Sandbox: pick(n.sandbox, "id"), Snapshot: pick(n.snapshot, "tag"), Image: pick(n.image, "name"),
		Count: n.count, Error: n.err,
	})
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
