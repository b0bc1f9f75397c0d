package daemon

import (
	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/metrics"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/roles"
)

// Routes adds the routes of the daemon itself.
type Routes struct {
	Answers respond.Answers
	Askers  auth.Askers
	View    routing.View
	Version api.VersionInfo
	Metrics *metrics.Metrics
	Streams *Streams
	// Host has the resources of the host, for the readiness. It needs no tenant.
	Host  roles.Hosts
	KVM   func() error // opens the device; may be nil
	Drain *drain.Drain
	Node  Node
	// AuditFile is the path of the audit log. If empty, there is none.
	AuditFile string
	Events    *events.Log // may be nil
	Pace      EventPace
}

// Add adds the routes.
func (f Routes) Add(rt *routing.Router) {
	(&daemonRoutes{f.Version, f.Metrics}).add(rt)
	(&readyRoutes{host: f.Host, kvm: f.KVM, drain: f.Drain}).add(rt)
	(&capacityRoutes{f.View.Hosts}).add(rt)
	(&nodeRoutes{node: f.Node, version: f.Version.Version, engine: nodeEngineOf(f.View), drain: f.Drain}).add(rt)
	(&drainRoutes{f.Drain}).add(rt)
	(&auditRoutes{f.Askers, f.Streams, f.AuditFile}).add(rt)
	(&eventRoutes{Answers: f.Answers, askers: f.Askers, streams: f.Streams, events: f.Events, pace: f.Pace,
		followers: newFollowers()}).add(rt)
}
