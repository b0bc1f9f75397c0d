// Package principal identifies the caller: the operator, or a tenant's key with its scopes. It has plain types
// and carries them in a context. It does not know keys, HTTP or the engine, and packages above the engine may
// import it. Beware: a context without a principal is a call by the daemon itself, which has the operator's
// rights.
package principal

import (
	"context"
	"errors"
)

// Principal is the caller. The zero value is the operator.
type Principal struct {
	Name   string // the key's name, or how the operator authenticated
	KeyID  string // empty if there is no key
	Tenant string // empty for the operator, who sees everything
	Scopes Scopes // of the key; without a key, all are granted
}

// Operator reports whether it belongs to no tenant. Its key may still lack scopes.
func (p Principal) Operator() bool { return p.Tenant == "" }

// May reports whether it has a scope.
func (p Principal) May(s Scopes) bool { return p.KeyID == "" || p.Scopes.Has(s) }

// Sees reports whether an owner's objects are visible to it.
func (p Principal) Sees(owner string) bool { return p.Tenant == "" || p.Tenant == owner }

type key struct{}

// With returns a context for requests of p.
func With(ctx context.Context, p Principal) context.Context { return context.WithValue(ctx, key{}, p) }

// From returns the context's principal. The default is the operator.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(key{}).(Principal)
	return p
}

// ErrKeyEnded is the cause of a bound context's end: its key was revoked, has expired or was rotated.
var ErrKeyEnded = errors.New("the API key was revoked, has expired or was rotated")

// KeyEnded reports whether ctx ended with its key.
func KeyEnded(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrKeyEnded) }

type bindKey struct{}

// WithBind stores in ctx the function that binds work to the lifetime of its key.
func WithBind(ctx context.Context, bind func(context.Context) context.Context) context.Context {
	return context.WithValue(ctx, bindKey{}, bind)
}

// Bind returns a context for work that also ends when asked's key does. Use it for work that outlives the
// request, such as a build. work must end to release the binding.
func Bind(asked, work context.Context) context.Context {
	if bind, ok := asked.Value(bindKey{}).(func(context.Context) context.Context); ok {
		return bind(work)
	}
	return work
}
