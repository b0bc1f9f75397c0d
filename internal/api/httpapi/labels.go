package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
)

// Labels changes the labels of sandboxes and snapshots.
type Labels interface {
	LabelSandbox(ctx context.Context, id string, change labels.Change) (sandbox.Info, error)
	LabelSnapshot(ctx context.Context, tag string, change labels.Change) (sandbox.SnapshotInfo, error)
}

type labelSandboxInput struct {
	IDPath
	Body api.LabelsRequest
}

type labelSnapshotInput struct {
	TagPath
	Body api.LabelsRequest
}

// labelRoutes serve changes of labels.
type labelRoutes struct{ engine shown[Labels] }

func (l *labelRoutes) add(rt *router) {
	route(rt, huma.Operation{
		OperationID: "label-sandbox", Method: http.MethodPatch, Path: "/v1/sandboxes/{id}/labels",
		Tags: []string{"sandboxes"}, Summary: "Change a sandbox's labels", Errors: []int{400, 401, 404, 409, 502, 507},
	}, l.labelSandbox)
	route(rt, huma.Operation{
		OperationID: "label-snapshot", Method: http.MethodPatch, Path: "/v1/snapshots/{tag}/labels",
		Tags: []string{"snapshots"}, Summary: "Change a snapshot's labels", Errors: []int{400, 401, 403, 404, 409, 507},
	}, l.labelSnapshot)
}

func (l *labelRoutes) labelSandbox(ctx context.Context, in *labelSandboxInput) (*body[api.SandboxInfo], error) {
	info, err := l.engine(ctx).LabelSandbox(ctx, in.ID, changeOf(ctx, in.ID, in.Body))
	return sandboxBody(ctx, info, err)
}

func (l *labelRoutes) labelSnapshot(ctx context.Context, in *labelSnapshotInput) (*body[api.SnapshotInfo], error) {
	info, err := l.engine(ctx).LabelSnapshot(ctx, in.Tag, changeOf(ctx, in.Tag, in.Body))
	if err != nil {
		return nil, err
	}
	return &body[api.SnapshotInfo]{wireSnapshot(info)}, nil
}

// changeOf converts a request. The audit log gets numbers only, because labels are long and not its subject.
func changeOf(ctx context.Context, object string, in api.LabelsRequest) labels.Change {
	note(ctx).object, note(ctx).text = object, fmt.Sprintf("%d labels set, %d removed", len(in.Set), len(in.Remove))
	return labels.Change{Set: in.Set, Remove: in.Remove}
}
