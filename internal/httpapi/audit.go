package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/ellipsis"
)

// Audit writes one JSON object per request, one per line.
type Audit struct {
	mu  sync.Mutex // guards the order of lines in w
	w   io.Writer
	now func() time.Time
}

// NewAudit makes an audit log over w, which the caller closes after the last
// request.
func NewAudit(w io.Writer, now func() time.Time) *Audit { return &Audit{w: w, now: now} }

// entry is a line of the audit log.
type entry struct {
	Time      string `json:"time"` // RFC 3339, when the request ended
	Method    string `json:"method"`
	Path      string `json:"path"`
	Status    int    `json:"status"`
	LatencyUS int64  `json:"latency_us"`
	UserAgent string `json:"user_agent"`
	Principal string `json:"principal,omitempty"` // how the client showed who it is
	Sandbox   string `json:"sandbox,omitempty"`
	Snapshot  string `json:"snapshot,omitempty"`
	Image     string `json:"image,omitempty"`
	Count     int    `json:"count,omitempty"` // children asked for
	Error     string `json:"error,omitempty"`
}

func (a *Audit) write(e entry) error {
	e.Time = a.now().UTC().Format(time.RFC3339Nano)
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = a.w.Write(append(line, '\n'))
	return err
}

// notes is what handlers add about their request. One request has one
// goroutine that writes to it.
type notes struct {
	principal, sandbox, snapshot, image, err string
	count                                    int
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

// record writes a request's line, with what its path and its handler told.
func (s *Server) record(r *http.Request, n *notes, status int, took time.Duration) {
	s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", status, "took", took)
	if s.audit == nil {
		return
	}
	pick := func(noted, param string) string {
		if noted != "" {
			return noted
		}
		return ellipsis.Clip(r.PathValue(param), 64)
	}
	err := s.audit.write(entry{
		Method: r.Method, Path: ellipsis.Clip(r.URL.Path, 1000), Status: status, LatencyUS: took.Microseconds(),
		UserAgent: ellipsis.Clip(r.UserAgent(), 300), Principal: n.principal,
		Sandbox: pick(n.sandbox, "id"), Snapshot: pick(n.snapshot, "tag"), Image: pick(n.image, "name"),
		Count: n.count, Error: n.err,
	})
	if err != nil {
		s.log.Error("write audit log", "error", err)
	}
}
