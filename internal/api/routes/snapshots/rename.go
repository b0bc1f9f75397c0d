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
	"github.com/forkd/forkd/internal/domain/workspace"
)

type renameInput struct {
	routing.TagPath
	Body api.RenameRequest
}

// renameRoutes serve new names of snapshots.
type renameRoutes struct {
	view routing.View
	book *workspace.Book
}

func (s *renameRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "rename-snapshot", Method: http.MethodPost, Path: "/v1/snapshots/{tag}/rename",
		Tags: []string{"snapshots"}, Summary: "Give a snapshot another tag",
		Description: "Its content hash, labels, pool, sandboxes and dependents stay. 409: the tag is taken, or an " +
			"operation uses the snapshot.",
		Errors: []int{400, 401, 403, 404, 409, 507},
	}, s.rename)
}

func (s *renameRoutes) rename(ctx context.Context, in *renameInput) (*routing.Body[api.SnapshotInfo], error) {
	n := requestinfo.From(ctx)
	if n.Object = in.Tag; in.Tag == in.Body.To {
		return nil, apierror.New(api.CodeInvalid, api.ReasonSameTag, "snapshot %s cannot be renamed to itself", in.Tag)
	}
	before, err := s.view(ctx).Snapshots.SnapshotBrief(in.Tag) // a tenant may omit its prefix
	if err != nil {
		return nil, err
	}
	info, err := s.view(ctx).Labels.RenameSnapshot(ctx, in.Tag, in.Body.To)
	if err != nil {
		return nil, err
	}
	n.Object, n.Snapshot, n.Text = before.Tag, info.Tag, "renamed"
	if err := s.book.Renamed(before.Tag, info.Tag); err != nil {
		return nil, err
	}
	return routing.Answer(wire.Snapshot(info)), nil
}
