package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// ndjson is the content type of a progress stream.
const ndjson = "application/x-ndjson"

// creations answer requests for new snapshots, at the end or step by step.
type creations struct {
	respond.Answers
	router *router // its document describes the answers
}

// responses describe the possible answers.
func (c *creations) responses() map[string]*huma.Response {
	created := c.router.jsonResponse("Created", api.SnapshotInfo{})
	created.Content[ndjson] = &huma.MediaType{Schema: c.router.schemaOf(api.Step{})}
	return map[string]*huma.Response{"201": created}
}

// answer makes a snapshot and writes the answer itself, because the answer may be a stream.
func (c *creations) answer(ctx context.Context, accept string, create creator) (*huma.StreamResponse, error) {
	if respond.Accepts(accept, ndjson) {
		return &huma.StreamResponse{Body: func(hc huma.Context) { c.stream(hc, create) }}, nil
	}
	info, err := create(ctx, func(sandbox.Step) {})
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		respond.JSON(w, http.StatusCreated, wireSnapshot(info))
	}}, nil
}

// creator makes a snapshot and reports its steps.
type creator func(ctx context.Context, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)

// stream sends a line per step. The status line is sent with the first step. A request that fails
// before it gets a plain error status.
func (c *creations) stream(hc huma.Context, create creator) {
	r, w := humago.Unwrap(hc)
	out := &lineStream{w: w, flush: http.NewResponseController(w).Flush}
	info, err := create(r.Context(), func(step sandbox.Step) { out.send(wireStep(step)) })
	switch {
	case err == nil:
		wire := wireSnapshot(info)
		out.send(api.Step{Snapshot: &wire})
	case out.started():
		out.send(api.Step{Error: c.Failed(r.Context(), err).Wire()})
	default:
		respond.Error(w, c.Failed(r.Context(), err))
	}
}

// lineStream writes JSON lines and flushes each one.
type lineStream struct {
	mu    sync.Mutex // guards the stream: several goroutines may report progress
	w     http.ResponseWriter
	flush func() error
	begun bool

	status int // of the answer; 0: 201
}

func (l *lineStream) started() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

func (l *lineStream) send(line any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", ndjson)
		l.w.WriteHeader(cmp.Or(l.status, http.StatusCreated))
	}
	// A disconnected client ends the request's context, so errors are ignored.
	_ = reply.Write(l.w, line)
	_ = l.flush()
}
