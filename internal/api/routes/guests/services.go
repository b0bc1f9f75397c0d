package guests

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/guestproxy"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/servicewire"
)

// ServicePath is the input of an operation on one service.
type ServicePath struct {
	routing.IDPath
	Service string `path:"service" doc:"Name of the service"`
}

type listServicesInput struct {
	routing.IDPath
	WaitSecs float64 `query:"wait_secs" doc:"Wait until each service is ready, failed or stopped, at most so long" minimum:"0" maximum:"600"`
}

type declareServiceInput struct {
	ServicePath
	Body api.ServiceSpec
}

type serviceActionInput struct {
	ServicePath
	Body api.ServiceAction
}

// serviceRoutes manage the services of a sandbox. The supervisor is the agent in the guest, so each
// request is one to the agent, and its answers are checked.
type serviceRoutes struct{ guests routing.Part[sandbox.Guests] }

func (s *serviceRoutes) add(rt *routing.Router) {
	tags := []string{"services"}
	failures := []int{400, 401, 404, 409, 501, 502, 503, 504, 507}
	const path = "/v1/sandboxes/{id}/services"
	routing.Route(rt, huma.Operation{
		OperationID: "list-services", Method: http.MethodGet, Path: path, Tags: tags,
		Summary: "List the services of a sandbox", Errors: failures,
	}, s.list)
	routing.Route(rt, huma.Operation{
		OperationID: "declare-service", Method: http.MethodPut, Path: path + "/{service}", Tags: tags,
		Summary:     "Declare a service and start it",
		Description: "A service with another declaration is replaced. With the same declaration it is left as it is.",
		Errors:      failures,
	}, s.declare)
	routing.Route(rt, huma.Operation{
		OperationID: "change-service", Method: http.MethodPost, Path: path + "/{service}", Tags: tags,
		Summary: "Stop, start or restart a service", Errors: failures,
	}, s.change)
	routing.Route(rt, huma.Operation{
		OperationID: "remove-service", Method: http.MethodDelete, Path: path + "/{service}", Tags: tags,
		Summary: "Stop a service and remove it with its log", DefaultStatus: http.StatusNoContent, Errors: failures,
	}, s.remove)
	query := func(name, what, kind string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: what, Schema: &huma.Schema{Type: kind}}
	}
	rt.RawRoute(huma.Operation{
		OperationID: "service-log", Method: http.MethodGet, Path: path + "/{service}/log", Tags: tags,
		Summary: "The end of a service's output",
		Parameters: []*huma.Param{query("follow", "Follow new output", "boolean"),
			query("tail", "Only the last so many lines", "integer")},
		Responses: map[string]*huma.Response{"200": {Description: "stdout and stderr, with a line in place of lost output",
			Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: "string"}}}}},
		Errors: failures,
	}, s.log)
}

// agent returns a client of a sandbox's agent for one request.
func (s *serviceRoutes) agent(ctx context.Context, id string) *agentclient.Client {
	return agentclient.New(func(dialing context.Context) (net.Conn, error) { return s.guests(ctx).DialAgent(dialing, id) })
}

// serviceGrace is the time for an answer beyond the time that the guest may take.
const serviceGrace = time.Minute

// ask sends one request about services.
func (s *serviceRoutes) ask(ctx context.Context, id string, most time.Duration,
	do func(context.Context, *agentclient.Client) (servicewire.List, error)) ([]api.Service, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most+serviceGrace,
		sandbox.Errorf(sandbox.ErrTimeout, "", "sandbox %s did not answer about its services", id))
	defer cancel()
	a := s.agent(ctx, id)
	defer a.Close()
	l, err := do(ctx, a)
	if err != nil {
		return nil, serviceFailure(ctx, id, err)
	}
	return wire.List(l.Services, wire.Service), nil
}

// serviceFailure converts an error of an agent about services.
func serviceFailure(ctx context.Context, id string, err error) error {
	var refused *agentclient.FileError
	var broke *agentproto.Violation
	switch {
	case errors.Is(err, agentclient.ErrNoServices), errors.Is(err, agentclient.ErrNoLiveness),
		errors.Is(err, agentclient.ErrNoStopSignal):
		return apierror.New(api.CodeUnsupported, api.ReasonAgentOld, "sandbox %s: %v", id, err)
	case errors.As(err, &broke):
		return apierror.New(api.CodeGuestGone, api.ReasonAgentSilent, "sandbox %s: %v", id, broke)
	case errors.As(err, &refused):
		code := map[int]api.Code{http.StatusNotFound: api.CodeNotFound, http.StatusConflict: api.CodeConflict,
			http.StatusGatewayTimeout: api.CodeTimeout}[refused.Code]
		if code == "" {
			code = api.CodeInvalid
		}
		return apierror.New(code, "", "sandbox %s: %v", id, refused)
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	}
	return guestproxy.Failure(id, err)
}

func (s *serviceRoutes) list(ctx context.Context, in *listServicesInput) (*routing.Body[[]api.Service], error) {
	wait := wire.Seconds(in.WaitSecs)
	l, err := s.ask(ctx, in.ID, wait, func(ctx context.Context, a *agentclient.Client) (servicewire.List, error) {
		return a.Services(ctx, wait)
	})
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.NotNil(l)), nil
}

// one returns a service of a list. A guest that leaves it out lies.
func one(id, name string, l []api.Service, err error) (*routing.Body[api.Service], error) {
	if err != nil {
		return nil, err
	}
	for _, v := range l {
		if v.Name == name {
			return routing.Answer(v), nil
		}
	}
	return nil, apierror.New(api.CodeGuestGone, api.ReasonAgentSilent,
		"sandbox %s: its agent does not list service %s", id, name)
}

func (s *serviceRoutes) declare(ctx context.Context, in *declareServiceInput) (*routing.Body[api.Service], error) {
	requestinfo.From(ctx).Object = in.Service
	spec := wire.ServiceSpec(api.NamedService{Name: in.Service, ServiceSpec: in.Body})
	if err := spec.Check(); err != nil {
		return nil, apierror.New(api.CodeInvalid, "", "%v", err)
	}
	l, err := s.ask(ctx, in.ID, 0, func(ctx context.Context, a *agentclient.Client) (servicewire.List, error) {
		return a.DeclareService(ctx, spec)
	})
	return one(in.ID, in.Service, l, err)
}

func (s *serviceRoutes) change(ctx context.Context, in *serviceActionInput) (*routing.Body[api.Service], error) {
	requestinfo.From(ctx).Object, requestinfo.From(ctx).Text = in.Service, in.Body.Action
	l, err := s.ask(ctx, in.ID, 0, func(ctx context.Context, a *agentclient.Client) (servicewire.List, error) {
		return a.ChangeService(ctx, in.Service, in.Body.Action)
	})
	return one(in.ID, in.Service, l, err)
}

func (s *serviceRoutes) remove(ctx context.Context, in *ServicePath) (*routing.None, error) {
	requestinfo.From(ctx).Object = in.Service
	_, err := s.ask(ctx, in.ID, 0, func(ctx context.Context, a *agentclient.Client) (servicewire.List, error) {
		return a.RemoveService(ctx, in.Service)
	})
	return nil, err
}

// log sends a service's output as text of unknown encoding.
func (s *serviceRoutes) log(w http.ResponseWriter, r *http.Request) error {
	follow, lines, err := logQuery(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	a := s.agent(r.Context(), id)
	defer a.Close()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	answer := time.AfterFunc(serviceGrace, cancel) // bounds the time to the first byte alone
	in, err := a.ServiceLog(ctx, r.PathValue("service"), lines, follow)
	if answer.Stop(); err != nil {
		return serviceFailure(ctx, id, err)
	}
	defer in.Close()
	routing.PlainText(w)
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	_ = control.Flush() // the client sees that it is connected
	buf := make([]byte, 16<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return nil // the client has disconnected
			}
			_ = control.Flush()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			panic(http.ErrAbortHandler) // the status is sent: the client must not see a normal end
		}
	}
}

// logQuery parses follow and tail.
func logQuery(r *http.Request) (follow bool, lines int, err error) {
	q := r.URL.Query()
	if tail := q.Get("tail"); tail != "" && q.Get("follow") == "" {
		q.Set("follow", "true") // consoles have tail with follow alone
		r = r.Clone(r.Context())
		r.URL.RawQuery = q.Encode()
		_, lines, err = routing.LogQuery(r)
		return false, lines, err
	}
	return routing.LogQuery(r)
}
