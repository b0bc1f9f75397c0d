package daemon

import (
	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/leaf/shares"
)

// maxFollowers limits the concurrent followers of events, of all tenants. The operator has the same
// number of slots for itself.
const maxFollowers = 256

// followers holds the slots of followers of events. Tenants share theirs.
type followers struct{ tenants, operator *shares.Pool }

func newFollowers() followers {
	return followers{tenants: shares.New(maxFollowers), operator: shares.New(maxFollowers)}
}

// take reserves a slot for a tenant. An empty tenant means the operator. The caller must call
// release.
func (f followers) take(tenant string) (release func(), err error) {
	k, pool := shares.Key{Tenant: tenant}, f.tenants
	if tenant == "" {
		pool = f.operator
	}
	if !pool.Try(k, 1) {
		return nil, apierror.New(api.CodeBusy, "",
			"too many event followers: all tenants share %d, and one tenant has three eighths of them at "+
				"most; end one and retry", maxFollowers)
	}
	return func() { pool.Free(k, 1) }, nil
}
