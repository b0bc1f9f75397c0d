package wire

import (
	"cmp"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// ServiceSpec converts a declaration.
func ServiceSpec(s api.NamedService) servicespec.Spec {
	out := servicespec.Spec{Name: s.Name, Command: s.Command, Env: s.Env, Cwd: s.Cwd, User: s.User, Port: s.Port,
		Restart: servicespec.Policy(s.Restart), MaxRestarts: s.MaxRestarts,
		StopSignal: s.StopSignal, StopMS: Seconds(s.StopTimeoutSecs).Milliseconds(), LogBytes: int64(s.LogKiB) << 10}
	if s.Ready != nil {
		out.Ready = servicespec.Ready{HTTP: s.Ready.HTTP, Command: s.Ready.Command,
			TimeoutMS: Seconds(s.Ready.TimeoutSecs).Milliseconds(), IntervalMS: int64(s.Ready.IntervalMS)}
	}
	if l := s.Liveness; l != nil {
		out.Liveness = servicespec.Liveness{TimeoutMS: Seconds(l.TimeoutSecs).Milliseconds(),
			IntervalMS:       cmp.Or(Seconds(l.IntervalSecs), servicespec.DefaultLivenessInterval).Milliseconds(),
			FailureThreshold: l.FailureThreshold}
	}
	if s.Backoff != nil {
		out.Backoff = servicespec.Backoff{InitialMS: int64(s.Backoff.InitialMS), MaxMS: int64(s.Backoff.MaxMS),
			ResetMS: Seconds(s.Backoff.ResetSecs).Milliseconds()}
	}
	return out
}

// ServiceSpecs converts and checks the services of a fork.
func ServiceSpecs(in []api.NamedService) ([]servicespec.Spec, error) {
	var out []servicespec.Spec
	for _, s := range in {
		out = append(out, ServiceSpec(s))
	}
	if err := servicespec.CheckAll(out); err != nil {
		return nil, apierror.New(api.CodeInvalid, "", "services: %v", err)
	}
	return out, nil
}

// Service converts a checked answer of a guest.
func Service(s servicespec.Status) api.Service {
	sp := s.Spec
	out := api.Service{State: string(s.State), PID: s.PID, ExitCode: s.ExitCode, Restarts: s.Restarts,
		Since: time.Unix(0, s.SinceNS).UTC(), Error: guesttext.Lines(s.Error).String(), LogBytes: s.LogBytes,
		LogLostBytes: s.LogLost}
	out.NamedService = api.NamedService{Name: sp.Name, ServiceSpec: api.ServiceSpec{Command: sp.Command, Env: sp.Env,
		Cwd: sp.Cwd, User: sp.User, Port: sp.Port, Restart: string(sp.Restart), MaxRestarts: sp.MaxRestarts,
		StopSignal: sp.StopSignal, StopTimeoutSecs: float64(sp.StopMS) / 1000, LogKiB: int(sp.LogBytes >> 10)}}
	if r := sp.Ready; r.HTTP != "" || len(r.Command) > 0 || r.TimeoutMS != 0 || r.IntervalMS != 0 {
		out.Ready = &api.ServiceReady{HTTP: r.HTTP, Command: r.Command, TimeoutSecs: float64(r.TimeoutMS) / 1000,
			IntervalMS: int(r.IntervalMS)}
	}
	if l := sp.Liveness; l.On() {
		out.Liveness = &api.ServiceLiveness{IntervalSecs: float64(l.IntervalMS) / 1000,
			TimeoutSecs: float64(l.TimeoutMS) / 1000, FailureThreshold: l.FailureThreshold}
	}
	if b := sp.Backoff; b != (servicespec.Backoff{}) {
		out.Backoff = &api.ServiceBackoff{InitialMS: int(b.InitialMS), MaxMS: int(b.MaxMS),
			ResetSecs: float64(b.ResetMS) / 1000}
	}
	return out
}

func serviceState(s sandbox.Service) api.ServiceState {
	return api.ServiceState{Name: s.Name, State: s.State, Restarts: s.Restarts, Error: s.Error}
}
