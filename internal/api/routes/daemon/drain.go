package daemon

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/drain"
)

type drainInput struct {
	Body api.DrainRequest
}

// drainRoutes order and cancel a drain. They are the operator's.
type drainRoutes struct{ drain *drain.Drain }

func (s *drainRoutes) add(rt *routing.Router) {
	tags := []string{"daemon"}
	routing.Route(rt, huma.Operation{
		OperationID: "drain-status", Method: http.MethodGet, Path: "/v1/drain", Tags: tags,
		Summary: "Whether the daemon is being drained, and which sandboxes are left", Errors: []int{401, 403},
	}, func(context.Context, *routing.None) (*routing.Body[api.Drain], error) { return s.status(), nil })
	routing.Route(rt, huma.Operation{
		OperationID: "drain", Method: http.MethodPost, Path: "/v1/drain", Tags: tags,
		Summary: "Take no new sandboxes, and pause the running ones or wait for them", Errors: []int{400, 401, 403, 507},
	}, func(_ context.Context, in *drainInput) (*routing.Body[api.Drain], error) {
		if err := s.drain.Start(drain.Mode(cmp.Or(in.Body.Mode, api.DrainPause)), in.Body.UntilRestart); err != nil {
			return nil, err
		}
		return s.status(), nil
	})
	routing.Route(rt, huma.Operation{
		OperationID: "cancel-drain", Method: http.MethodDelete, Path: "/v1/drain", Tags: tags,
		Summary: "Take new sandboxes again; paused ones stay paused", Errors: []int{401, 403, 507},
		DefaultStatus: http.StatusOK,
	}, func(context.Context, *routing.None) (*routing.Body[api.Drain], error) {
		if err := s.drain.Cancel(); err != nil {
			return nil, err
		}
		return s.status(), nil
	})
}

func (s *drainRoutes) status() *routing.Body[api.Drain] {
	st := s.drain.Status()
	out := api.Drain{Empty: st.Empty(), Coming: st.Coming, Paused: st.Paused, Left: []api.DrainLeft{}}
	if o := st.Order; o != nil {
		out.Draining, out.Mode, out.SinceUnix = true, api.DrainMode(o.Mode), o.Since.Unix()
		out.UntilRestart = o.UntilRestart
	}
	for _, l := range st.Left {
		out.Left = append(out.Left, api.DrainLeft{ID: l.ID, Tenant: l.Owner, Status: string(l.Status), Error: l.Error})
	}
	return routing.Answer(out)
}
