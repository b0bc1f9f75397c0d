package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/merge"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

type mergeInput struct {
	routing.IDPath
	Body api.MergeRequest
}

// mergeRoutes merge the files of two sandboxes.
type mergeRoutes struct{ engine routing.Part[merge.Engine] }

func (s *mergeRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "merge", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/merge", Tags: []string{"sandboxes"},
		Summary: "Merge the changed files of another sandbox or of a snapshot into a running sandbox",
		Description: "Compares both with the snapshot that they come from, of which a helper is forked meanwhile. A " +
			"conflict that is left is no error: applied is false then, and no file is changed. An error may come after " +
			"a part of the changes; its text says so.",
		Errors: []int{400, 401, 403, 404, 409, 429, 502, 503, 504, 507},
	}, s.merge)
}

func (s *mergeRoutes) merge(ctx context.Context, in *mergeInput) (*routing.Body[api.MergeResult], error) {
	if membudget.From(ctx).Full(routing.LeastOutput) {
		return nil, reply.Full()
	}
	b := in.Body
	requestinfo.From(ctx).Object, requestinfo.From(ctx).Text = b.Theirs, "theirs"
	paths := map[string]merge.Side{}
	for path, side := range b.Paths {
		paths[path] = merge.Side(side)
	}
	res, err := merge.Run(ctx, s.engine(ctx), merge.Request{Ours: in.ID, Theirs: b.Theirs, Base: b.Base,
		Resolve: merge.Side(b.Resolve), Paths: paths, DryRun: b.DryRun})
	if err != nil {
		return nil, err
	}
	return routing.Answer(wireMerge(res)), nil
}

func wireMerge(r merge.Result) api.MergeResult {
	return api.MergeResult{
		Base: r.Base, Applied: r.Applied, Unresolved: r.Unresolved(), Complete: r.Complete,
		Changes: wire.List(r.Changes, func(c merge.Change) api.MergeChange {
			return api.MergeChange{Path: c.Path, Action: api.MergeAction(c.Action)}
		}),
		Conflicts: wire.List(r.Conflicts, func(c merge.Conflict) api.MergeConflict {
			return api.MergeConflict{Path: c.Path, Kind: c.Kind, Text: guesttext.Of(c.Text).String(),
				Resolved: api.MergeSide(c.Resolved)}
		}),
		Skipped: wire.List(r.Skipped, func(s merge.Skipped) api.MergeSkipped { return api.MergeSkipped(s) }),
	}
}
