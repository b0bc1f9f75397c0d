package guests

import (
	"github.com/forkd/forkd/internal/api/guestproxy"
	"github.com/forkd/forkd/internal/api/metrics"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
)

// Routes adds the routes to programs in sandboxes.
type Routes struct {
	Answers respond.Answers
	View    routing.View
	Metrics *metrics.Metrics
}

// Add adds the routes.
func (f Routes) Add(rt *routing.Router) {
	(&guestRoutes{f.View.Guests, f.Metrics}).add(rt)
	(&portRoutes{f.View.Guests}).add(rt)
	(&serviceRoutes{f.View.Guests}).add(rt)
	(&agentRoutes{f.View.Sandboxes, guestproxy.NewAgent(f.Answers, f.View.Sandboxes, f.View.Guests)}).add(rt)
}
