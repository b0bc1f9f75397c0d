package snapshots

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/retention"
)

type labelSnapshotInput struct {
	routing.TagPath
	Body api.LabelsRequest
}

// pruneInput has an optional body.
type pruneInput struct {
	Body *api.PruneRequest
}

// labelRoutes serve changes of snapshots' labels, and the rules of retention in them.
type labelRoutes struct{ engine routing.Part[roles.Labels] }

func (l *labelRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "label-snapshot", Method: http.MethodPatch, Path: "/v1/snapshots/{tag}/labels",
		Tags: []string{"snapshots"}, Summary: "Change a snapshot's labels", Errors: []int{400, 401, 403, 404, 409, 507},
	}, l.labelSnapshot)
	routing.Route(rt, huma.Operation{
		OperationID: "prune-snapshots", Method: http.MethodPost, Path: "/v1/store/prune",
		Tags: []string{"snapshots"}, Summary: "Remove the snapshots that are due",
		Description: "A snapshot is due by the rules of its labels: its expiry, or the number of snapshots to keep. The " +
			"daemon also removes due snapshots by itself, after a minute. A tenant's key sees its own snapshots only.",
		Errors: []int{400, 401, 403},
	}, l.pruneSnapshots)
}

func (l *labelRoutes) labelSnapshot(ctx context.Context,
	in *labelSnapshotInput) (*routing.Body[api.SnapshotInfo], error) {
	change := routing.LabelChange(ctx, in.Tag, in.Body)
	change.Set = retention.Resolve(change.Set, time.Now())
	info, err := l.engine(ctx).LabelSnapshot(ctx, in.Tag, change)
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.Snapshot(info)), nil
}

func (l *labelRoutes) pruneSnapshots(ctx context.Context, in *pruneInput) (*routing.Body[api.PruneResult], error) {
	r, err := l.engine(ctx).PruneSnapshots(ctx, sandbox.PruneRequest{DryRun: in.Body != nil && in.Body.DryRun})
	if err != nil {
		return nil, err
	}
	requestinfo.From(ctx).Text = fmt.Sprintf(
		"%d snapshots due, %d bytes freed, dry run: %t", len(r.Snapshots), r.Bytes, r.DryRun)
	out := api.PruneResult{DryRun: r.DryRun, Snapshots: []api.DueSnapshot{}, Bytes: r.Bytes}
	for _, d := range r.Snapshots {
		out.Snapshots = append(out.Snapshots, api.DueSnapshot(d))
	}
	return routing.Answer(out), nil
}
