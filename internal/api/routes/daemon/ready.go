package daemon

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// readyAge is the time for which an answer is used again. Clients need no token, so they must not be
// able to make the daemon measure at any rate.
const readyAge = time.Second

// readyRoutes tell load balancers and supervisors whether the daemon can start VMs.
type readyRoutes struct {
	host  roles.Hosts
	kvm   func() error // opens the device; may be nil
	drain *drain.Drain

	mu   sync.Mutex
	last *apierror.Error
	at   time.Time
}

func (s *readyRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "ready", Method: http.MethodGet, Path: "/readyz", Tags: []string{"daemon"},
		Summary:  "Whether the daemon can start VMs; needs no token",
		Security: []map[string][]string{}, Errors: []int{http.StatusServiceUnavailable},
	}, func(context.Context, *routing.None) (*routing.Body[api.Readiness], error) {
		if f := s.now(); f != nil {
			return nil, f
		}
		return routing.Answer(api.Readiness{Ready: true}), nil
	})
}

// now returns the reason why no VM can be started, at most readyAge old. It returns nil if one can.
func (s *readyRoutes) now() *apierror.Error {
	if s.drain != nil && s.drain.On() { // it must hold at once, so it is not cached
		return apierror.New(api.CodeDraining, "", "the daemon is not ready: it is draining and takes no new sandboxes")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) > readyAge {
		s.last, s.at = s.check(), time.Now()
	}
	if s.last == nil {
		return nil
	}
	return s.last.WithStatus(http.StatusServiceUnavailable) // a copy, which gets the ID of the request
}

// exhausted maps resources to the codes of forks that are refused for lack of them.
var exhausted = map[string]api.Code{
	sandbox.ResourceMemory: api.CodeNoMemory,
	sandbox.ResourceDisk:   api.CodeNoSpace,
}

func (s *readyRoutes) check() *apierror.Error {
	if s.kvm != nil && s.kvm() != nil {
		return apierror.New(api.CodeNoResources, "", "the daemon is not ready: its KVM device cannot be opened")
	}
	c, err := s.host.Capacity()
	if err != nil {
		return apierror.New(api.CodeNoResources, "", "the daemon is not ready: it cannot read the host's resources")
	}
	for _, r := range c.Resources {
		if r.Total <= 0 || r.Free > 0 {
			continue
		}
		code := exhausted[r.Name]
		if code == "" {
			code = api.CodeNoResources
		}
		return apierror.New(code, "", "the daemon is not ready: no %s is left for VMs", r.Name)
	}
	if c.Admits == sandbox.AdmitsNone {
		return apierror.New(api.CodeBusy, api.ReasonHostPressure, "the daemon is not ready: the host is under pressure")
	}
	return nil
}
