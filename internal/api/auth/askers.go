package auth

import (
	"context"

	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/principal"
)

// Askers returns the sender of a request, with the daemon's function (Options.Asker of httpapi).
type Askers struct {
	Of func(context.Context) requestinfo.Asker
}

// NewAskers returns an Askers. If of is nil, the sender is the principal of the context.
func NewAskers(of func(context.Context) requestinfo.Asker) Askers {
	if of == nil {
		of = func(ctx context.Context) requestinfo.Asker {
			p := principal.From(ctx)
			if p.KeyID == "" {
				return requestinfo.Asker{} // its name is its transport
			}
			return requestinfo.Asker{Key: p.KeyID, Name: p.Name, Tenant: p.Tenant}
		}
	}
	return Askers{of}
}

// Visible reports whether the caller may see an object of the given owner. This is the only such
// check for objects other than sandboxes and snapshots, such as events.
func (a Askers) Visible(ctx context.Context, owner string) bool {
	tenant := a.Of(ctx).Tenant
	return tenant == "" || tenant == owner
}

// Operator reports whether the caller is the operator.
func (a Askers) Operator(ctx context.Context) bool { return a.Of(ctx).Tenant == "" }
