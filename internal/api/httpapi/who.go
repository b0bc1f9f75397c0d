package httpapi

import (
	"context"

	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/principal"
)

// askers returns the sender of a request, with the daemon's function (Options.Asker).
type askers struct {
	of func(context.Context) requestinfo.Asker
}

func newAskers(of func(context.Context) requestinfo.Asker) askers {
	if of == nil {
		of = func(ctx context.Context) requestinfo.Asker {
			p := principal.From(ctx)
			if p.KeyID == "" {
				return requestinfo.Asker{} // its name is its transport
			}
			return requestinfo.Asker{Key: p.KeyID, Name: p.Name, Tenant: p.Tenant}
		}
	}
	return askers{of}
}

// visible reports whether the caller may see an object of the given owner. This is the only such
// check for objects other than sandboxes and snapshots, such as events.
func (a askers) visible(ctx context.Context, owner string) bool {
	tenant := a.of(ctx).Tenant
	return tenant == "" || tenant == owner
}

// operator reports whether the caller is the operator.
func (a askers) operator(ctx context.Context) bool { return a.of(ctx).Tenant == "" }
