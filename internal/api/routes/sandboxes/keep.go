package sandboxes

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/keep"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

type keepInput struct{ Body api.KeepRequest }

// keepRoutes compare sandboxes and end all but the best.
type keepRoutes struct{ engine routing.Part[keep.Engine] }

func (s *keepRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "keep-best", Method: http.MethodPost, Path: "/v1/sandboxes/keep", Tags: []string{"sandboxes"},
		Summary: "Score sandboxes, keep the best and end the rest",
		Description: "Runs args in each sandbox, or reads file, and ranks them by the number in the first line. None is " +
			"ended before all are scored. A sandbox without a score is kept unless end_unscored is set; if none has a " +
			"score, none is ended.",
		Errors: []int{400, 401, 403, 404, 504},
	}, s.keep)
}

func (s *keepRoutes) keep(ctx context.Context, in *keepInput) (*routing.Body[api.KeepResult], error) {
	b := in.Body
	requestinfo.From(ctx).Count = len(b.IDs)
	all, err := keep.Run(ctx, s.engine(ctx), keep.Request{
		IDs: b.IDs, Of: b.Of, Best: b.Best, Args: b.Args, File: b.File, Lowest: b.Lowest,
		Timeout: wire.Seconds(b.TimeoutSecs), EndUnscored: b.EndUnscored, DryRun: b.DryRun,
	})
	if err != nil {
		return nil, err
	}
	noteKept(ctx, all, b.DryRun)
	return routing.Answer(wireKept(all, b.DryRun)), nil
}

// noteKept records the ended sandboxes in the audit log.
func noteKept(ctx context.Context, all []keep.Entry, dryRun bool) {
	var ended []string
	for _, s := range all {
		if s.Outcome == keep.Ended && !dryRun {
			ended = append(ended, s.ID)
		}
	}
	n := requestinfo.From(ctx)
	n.Count = len(all)
	if len(ended) > 0 {
		n.Object, n.Text = ellipsis.Clip(strings.Join(ended, ","), 500), "ended"
	}
}

func wireKept(all []keep.Entry, dryRun bool) api.KeepResult {
	out := api.KeepResult{Sandboxes: []api.KeepEntry{}, DryRun: dryRun}
	for _, s := range all {
		e := api.KeepEntry{ID: s.ID, Outcome: api.KeepOutcome(s.Outcome), Problem: s.Problem}
		if s.Scored {
			e.Score = &s.Score
		} else {
			out.Unscored++
		}
		switch s.Outcome {
		case keep.Kept:
			out.Kept++
		case keep.Ended:
			out.Ended++
		}
		out.Sandboxes = append(out.Sandboxes, e)
	}
	return out
}
