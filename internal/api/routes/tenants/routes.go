package tenants

import (
	"time"

	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/secrets"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/domain/volumes"
)

// Routes adds the routes of tenants and their objects. Stores may be nil.
type Routes struct {
	Keys     *keys.Store
	Secrets  *secrets.Store
	Volumes  volumes.Tenants
	Networks *privatenets.Store
	Weights  *tenancy.Weights
}

// Add adds the routes.
func (f Routes) Add(rt *routing.Router) {
	(&keyRoutes{f.Keys, time.Now}).add(rt)
	(&secretRoutes{f.Secrets}).add(rt)
	(&volumeRoutes{f.Volumes}).add(rt)
	(&privateNetRoutes{f.Networks}).add(rt)
	(&tenantRoutes{f.Weights}).add(rt)
}
