package snapshots

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// creations answer requests for new snapshots, at the end or step by step.
type creations struct {
	respond.Answers
	router *routing.Router // its document describes the answers
}

// responses describe the possible answers.
func (c *creations) responses() map[string]*huma.Response {
	created := c.router.JSONResponse("Created", api.SnapshotInfo{})
	created.Content[routing.NDJSON] = &huma.MediaType{Schema: c.router.SchemaOf(api.Step{})}
	return map[string]*huma.Response{"201": created}
}

// answer makes a snapshot and writes the answer itself, because the answer may be a stream.
func (c *creations) answer(ctx context.Context, accept string, create creator) (*huma.StreamResponse, error) {
	if respond.Accepts(accept, routing.NDJSON) {
		return &huma.StreamResponse{Body: func(hc huma.Context) { c.stream(hc, create) }}, nil
	}
	info, err := create(ctx, func(sandbox.Step) {})
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		respond.JSON(w, http.StatusCreated, wire.Snapshot(info))
	}}, nil
}

// creator makes a snapshot and reports its steps.
type creator func(ctx context.Context, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)

// stream sends a line per step. The status line is sent with the first step. A request that fails
// before it gets a plain error status.
func (c *creations) stream(hc huma.Context, create creator) {
	r, w := humago.Unwrap(hc)
	out := routing.NewLines(w, http.StatusCreated)
	info, err := create(r.Context(), func(step sandbox.Step) { out.Send(wire.Step(step)) })
	switch {
	case err == nil:
		snapshot := wire.Snapshot(info)
		out.Send(api.Step{Snapshot: &snapshot})
	case out.Started():
		out.Send(api.Step{Error: c.Failed(r.Context(), err).Wire()})
	default:
		respond.Error(w, c.Failed(r.Context(), err))
	}
}
