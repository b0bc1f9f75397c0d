package routing

import (
	"net/http"
	"sync"

	"github.com/forkd/forkd/internal/api/reply"
)

// NDJSON is the content type of a progress stream.
const NDJSON = "application/x-ndjson"

// NewLines returns a stream that begins with status.
func NewLines(w http.ResponseWriter, status int) *Lines {
	return &Lines{w: w, flush: http.NewResponseController(w).Flush, status: status}
}

// Lines writes JSON lines and flushes each one.
type Lines struct {
	mu    sync.Mutex // guards the stream: several goroutines may report progress
	w     http.ResponseWriter
	flush func() error
	begun bool

	status int // of the answer
}

// Started reports whether a line was sent, and with it the status.
func (l *Lines) Started() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

// Send writes a line.
func (l *Lines) Send(line any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", NDJSON)
		l.w.WriteHeader(l.status)
	}
	// A disconnected client ends the request's context, so errors are ignored.
	_ = reply.Write(l.w, line)
	_ = l.flush()
}
