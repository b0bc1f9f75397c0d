package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/retention"
)

type labelSandboxInput struct {
	IDPath
	Body api.LabelsRequest
}

type labelSnapshotInput struct {
	TagPath
	Body api.LabelsRequest
}

// pruneInput has an optional body.
type pruneInput struct {
	Body *api.PruneRequest
}

// labelRoutes serve changes of labels.
type labelRoutes struct{ engine shown[roles.Labels] }

func (l *labelRoutes) add(rt *router) {
	route(rt, huma.Operation{
		OperationID: "label-sandbox", Method: http.MethodPatch, Path: "/v1/sandboxes/{id}/labels",
		Tags: []string{"sandboxes"}, Summary: "Change a sandbox's labels", Errors: []int{400, 401, 404, 409, 502, 507},
	}, l.labelSandbox)
	route(rt, huma.Operation{
		OperationID: "label-snapshot", Method: http.MethodPatch, Path: "/v1/snapshots/{tag}/labels",
		Tags: []string{"snapshots"}, Summary: "Change a snapshot's labels", Errors: []int{400, 401, 403, 404, 409, 507},
	}, l.labelSnapshot)
	route(rt, huma.Operation{
		OperationID: "prune-snapshots", Method: http.MethodPost, Path: "/v1/store/prune",
		Tags: []string{"snapshots"}, Summary: "Remove the snapshots that are due",
		Description: "A snapshot is due by the rules of its labels: its expiry, or the number of snapshots to keep. The " +
			"daemon also removes due snapshots by itself, after a minute. A tenant's key sees its own snapshots only.",
		Errors: []int{400, 401, 403},
	}, l.pruneSnapshots)
}

func (l *labelRoutes) labelSandbox(ctx context.Context, in *labelSandboxInput) (*body[api.SandboxInfo], error) {
	info, err := l.engine(ctx).LabelSandbox(ctx, in.ID, changeOf(ctx, in.ID, in.Body))
	return sandboxBody(ctx, info, err)
}

func (l *labelRoutes) labelSnapshot(ctx context.Context, in *labelSnapshotInput) (*body[api.SnapshotInfo], error) {
	change := changeOf(ctx, in.Tag, in.Body)
	change.Set = retention.Resolve(change.Set, time.Now())
	info, err := l.engine(ctx).LabelSnapshot(ctx, in.Tag, change)
	if err != nil {
		return nil, err
	}
	return &body[api.SnapshotInfo]{wireSnapshot(info)}, nil
}

func (l *labelRoutes) pruneSnapshots(ctx context.Context, in *pruneInput) (*body[api.PruneResult], error) {
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
	return &body[api.PruneResult]{out}, nil
}

// changeOf converts a request. The audit log gets numbers only, because labels are long and not its subject.
func changeOf(ctx context.Context, object string, in api.LabelsRequest) labels.Change {
	n := requestinfo.From(ctx)
	n.Object, n.Text = object, fmt.Sprintf("%d labels set, %d removed", len(in.Set), len(in.Remove))
	return labels.Change{Set: in.Set, Remove: in.Remove}
}
