// Package principal is who asks: the operator, or a key of a tenant with its scopes. It is
// plain words and the way they travel in a context; it knows no keys, no HTTP and no
// engine, and all that stands over the engine may import it. The trap: a context without a
// principal is the daemon's own call, and that one is the operator's.
package principal

import (
	"context"
	"errors"
)

// Principal is who asks. The zero value is the operator.
type Principal struct {
	Name   string // of the key, or how the operator showed who it is
	KeyID  string // empty: it came without a key
	Tenant string // empty: the operator, who sees everything
	Scopes Scopes // of the key; without a key all are granted
}

// Operator reports whether it is nobody's tenant. Its key may still lack scopes.
func (p Principal) Operator() bool { return p.Tenant == "" }

// May reports whether it has a scope.
func (p Principal) May(s Scopes) bool { return p.KeyID == "" || p.Scopes.Has(s) }

// Sees reports whether what belongs to an owner is there for it.
func (p Principal) Sees(owner string) bool { return p.Tenant == "" || p.Tenant == owner }

type key struct{}

// With is a context of what p asks for.
func With(ctx context.Context, p Principal) context.Context { return context.WithValue(ctx, key{}, p) }

// From is who asks; the operator if nobody is named.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(key{}).(Principal)
	return p
}

// ErrKeyEnded is the cause of a bound context's end: its key was revoked, has expired or was rotated.
var ErrKeyEnded = errors.New("the API key was revoked, has expired or was rotated")

// KeyEnded reports whether ctx ended with its key.
func KeyEnded(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrKeyEnded) }

type bindKey struct{}

// WithBind notes in ctx how work for its principal is bound to the life of its key.
func WithBind(ctx context.Context, bind func(context.Context) context.Context) context.Context {
	return context.WithValue(ctx, bindKey{}, bind)
}

// Bind returns work that also ends when the key behind asked does. It is for work that outlives
// the request, such as a build; work must end, which frees the binding.
func Bind(asked, work context.Context) context.Context {
	if bind, ok := asked.Value(bindKey{}).(func(context.Context) context.Context); ok {
		return bind(work)
	}
	return work
}
