package snapshots

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

type compactInput struct {
	routing.TagPath
	Accept string `header:"Accept" doc:"application/x-ndjson streams the progress, a Step per line"`
	Body   api.CompactRequest
}

// collectInput has an optional body.
type collectInput struct {
	Body *api.CollectRequest
}

// storeRoutes manage the layers of snapshots.
type storeRoutes struct {
	engine  routing.Part[roles.Snapshots]
	created *creations
}

func (s *storeRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "compact-snapshot", Method: http.MethodPost, Path: "/v1/snapshots/{tag}/compact",
		Tags:          []string{"snapshots"},
		Summary:       "Make a new snapshot with the same content and its own base layers",
		DefaultStatus: http.StatusCreated, Responses: s.created.responses(), Errors: []int{400, 401, 404, 409, 507},
	}, s.compactSnapshot)
	routing.Route(rt, huma.Operation{
		OperationID: "collect-layers", Method: http.MethodPost, Path: "/v1/store/gc", Tags: []string{"store"},
		Summary:     "Remove unused layers of memory and disks",
		Description: "The daemon also does this at its start and after deletions.",
		Errors:      []int{400, 401, 409},
	}, s.collectLayers)
}

func (s *storeRoutes) compactSnapshot(ctx context.Context, in *compactInput) (*huma.StreamResponse, error) {
	requestinfo.From(ctx).Snapshot = in.Body.To
	if in.Tag == in.Body.To {
		return nil, apierror.New(api.CodeInvalid, api.ReasonSameTag, "snapshot %s cannot be compacted to itself", in.Tag)
	}
	return s.created.answer(ctx, in.Accept,
		func(ctx context.Context, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
			return s.engine(ctx).CompactSnapshot(ctx, in.Tag, in.Body.To, progress)
		})
}

func (s *storeRoutes) collectLayers(ctx context.Context, in *collectInput) (*routing.Body[api.CollectResult], error) {
	report, err := s.engine(ctx).CollectLayers(ctx, in.Body != nil && in.Body.DryRun)
	if err != nil {
		return nil, err
	}
	return routing.Answer(api.CollectResult{
		DryRun: report.DryRun, Layers: wire.NotNil(report.Layers), Temporary: report.Temporary, Bytes: report.Bytes,
	}), nil
}
