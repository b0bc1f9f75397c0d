package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/roles"
)

type labelSandboxInput struct {
	routing.IDPath
	Body api.LabelsRequest
}

// sandboxLabelRoutes serve changes of sandboxes' labels.
type sandboxLabelRoutes struct{ engine routing.Part[roles.Labels] }

func (l *sandboxLabelRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "label-sandbox", Method: http.MethodPatch, Path: "/v1/sandboxes/{id}/labels",
		Tags: []string{"sandboxes"}, Summary: "Change a sandbox's labels", Errors: []int{400, 401, 404, 409, 502, 507},
	}, l.labelSandbox)
}

func (l *sandboxLabelRoutes) labelSandbox(ctx context.Context,
	in *labelSandboxInput) (*routing.Body[api.SandboxInfo], error) {
	info, err := l.engine(ctx).LabelSandbox(ctx, in.ID, routing.LabelChange(ctx, in.ID, in.Body))
	return sandboxBody(ctx, info, err)
}
