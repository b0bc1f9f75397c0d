package httpapi

import (
	"context"

	"github.com/forkd/forkd/internal/domain/principal"
)

// Asker is who a request came from, as far as it was shown by a key. The zero Asker is the operator,
// who sees everything.
type Asker struct {
	Key, Name string // ID of the key, and its name
	Tenant    string // whose it is; empty: the operator's
}

// askers says who asks; its function is the daemon's (Options.Asker).
type askers struct{ of func(context.Context) Asker }

func newAskers(of func(context.Context) Asker) askers {
	if of == nil {
		of = func(ctx context.Context) Asker {
			p := principal.From(ctx)
			if p.KeyID == "" {
				return Asker{} // its name is the way it came
			}
			return Asker{Key: p.KeyID, Name: p.Name, Tenant: p.Tenant}
		}
	}
	return askers{of}
}

// visible reports whether who asks may see what is an owner's. This is the one place that decides it
// for what is no sandbox and no snapshot, such as events.
func (a askers) visible(ctx context.Context, owner string) bool {
	tenant := a.of(ctx).Tenant
	return tenant == "" || tenant == owner
}

// operator reports whether the operator asks.
func (a askers) operator(ctx context.Context) bool { return a.of(ctx).Tenant == "" }
