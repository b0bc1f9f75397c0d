package op

import (
	"github.com/forkd/forkd/internal/domain/volumes"
	"github.com/forkd/forkd/internal/store/volume"
)

// Volumes takes volumes for sandboxes that exist, and returns them. Forks do the same for new ones
// (forkvolumes.go).
type Volumes struct {
	e     *Ops
	store *volume.Store
}

// NewVolumes returns Volumes.
func NewVolumes(o *Ops) *Volumes { return &Volumes{o, o.volumes} }

// TenantVolumes returns the volumes of all tenants.
func (v *Volumes) TenantVolumes() volumes.Tenants {
	return volumes.Tenants{Store: v.store, Removed: v.e.catalog.CollectLater}
}
