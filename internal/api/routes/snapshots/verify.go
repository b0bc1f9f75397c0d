package snapshots

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// stepVerify is the only step of a verification.
const stepVerify = "verify"

// verifyEvery is the interval of progress lines during a verification.
const verifyEvery = 200 * time.Millisecond

type verifySnapshotInput struct {
	routing.TagPath
	Accept string `header:"Accept" doc:"application/x-ndjson streams the progress, a Step per line"`
}

func verifyResponses(rt *routing.Router) map[string]*huma.Response {
	ok := rt.JSONResponse("OK", api.VerifyResult{})
	ok.Content[routing.NDJSON] = &huma.MediaType{Schema: rt.SchemaOf(api.Step{})}
	return map[string]*huma.Response{"200": ok}
}

func (s *snapshotRoutes) verifySnapshot(ctx context.Context, in *verifySnapshotInput) (*huma.StreamResponse, error) {
	if respond.Accepts(in.Accept, routing.NDJSON) {
		return &huma.StreamResponse{Body: func(hc huma.Context) { s.streamVerify(hc, in.Tag) }}, nil
	}
	report, err := s.verify(ctx, in.Tag)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		respond.JSON(w, http.StatusOK, report)
	}}, nil
}

func (s *snapshotRoutes) verify(ctx context.Context, tag string) (api.VerifyResult, error) {
	report, err := s.engine(ctx).VerifySnapshot(ctx, tag)
	if err != nil {
		f := *apierror.From(err)
		if f.Code == api.CodeNotRestorable { // advice to verify would be pointless
			f.Reason, f.Details = api.ReasonVerifyFailed, map[string]string{"tag": tag}
		}
		return api.VerifyResult{}, &f
	}
	return wireVerify(report), nil
}

// streamVerify sends progress lines while a snapshot is read, and then the result.
func (s *snapshotRoutes) streamVerify(hc huma.Context, tag string) {
	r, w := humago.Unwrap(hc)
	out := routing.NewLines(w, http.StatusOK)
	var told time.Time
	ctx := sandbox.WithProgress(r.Context(), func(done, total int64) {
		if now := time.Now(); now.Sub(told) >= verifyEvery {
			told = now
			out.Send(api.Step{Step: stepVerify, Bytes: done, Total: total})
		}
	})
	report, err := s.verify(ctx, tag)
	switch {
	case err == nil:
		out.Send(api.Step{Verify: &report})
	case out.Started():
		out.Send(api.Step{Error: s.created.Failed(r.Context(), err).Wire()})
	default:
		respond.Error(w, s.created.Failed(r.Context(), err))
	}
}

func wireVerify(r sandbox.VerifyReport) api.VerifyResult {
	out := api.VerifyResult{
		Tag: r.Tag, OK: r.OK(), Files: r.Files, Bytes: r.Bytes,
		Damaged: []api.Damage{}, TookMS: wire.Milliseconds(r.Took),
	}
	for _, d := range r.Damaged {
		out.Damaged = append(out.Damaged, api.Damage(d))
	}
	return out
}
