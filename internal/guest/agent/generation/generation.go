// Package generation distinguishes a guest from its clones. A running guest may be cloned with
// requests in progress. In the clone their connections are reset, as if every caller had left,
// although the callers still talk to the source. The package marks each request and compares the
// mark later. The server of a request decides about the consequences.
//
// Read the address after the connection broke and not before, because the kernel first takes the
// clone's address and then resets sockets.
package generation

import (
	"context"
	"sync/atomic"
)

// Addresser reads a guest's own address. The address differs in each clone.
type Addresser interface {
	ContextID() (uint32, error)
}

// Guest is this guest, across all clonings that led to it.
type Guest struct {
	addr Addresser
	// identities counts the identities taken. It distinguishes clones if there is no address, or if
	// an address is used again.
	identities atomic.Uint64
}

// New returns a Guest with the address from addr.
func New(addr Addresser) *Guest { return &Guest{addr: addr} }

// Advance notes that the guest has taken another identity.
func (g *Guest) Advance() { g.identities.Add(1) }

// Mark stores the current generation in a request's context. Use it per request and not per
// connection, because a connection may serve requests before and after an identity.
func (g *Guest) Mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, markKey{}, mark{g, g.now()})
}

type markKey struct{}

type mark struct {
	guest *Guest
	began point
}

// point is a moment in the lineage of a guest.
type point struct {
	cid        uint32
	known      bool // cid could be read
	identities uint64
}

func (g *Guest) now() point {
	cid, err := g.addr.ContextID()
	return point{cid, err == nil, g.identities.Load()}
}

// Changed reports whether this guest is a clone of the one in which the request of ctx began, so
// that the caller belongs to the source. Without a mark it returns false. If no address can be
// read, only a new identity counts as a change.
func Changed(ctx context.Context) bool {
	m, ok := ctx.Value(markKey{}).(mark)
	if !ok {
		return false
	}
	now := m.guest.now()
	return now.identities != m.began.identities || now.known && m.began.known && now.cid != m.began.cid
}

// Outlive returns a context for work that must continue in a clone. It ends with ctx, except if ctx
// ends because the guest was cloned. A deadline stays in force.
func Outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	late := context.CancelFunc(func() {})
	if at, ok := ctx.Deadline(); ok {
		out, late = context.WithDeadline(out, at)
	}
	stop := context.AfterFunc(ctx, func() {
		if ctx.Err() != context.DeadlineExceeded && !Changed(ctx) {
			cancel()
		}
	})
	return out, func() { stop(); late(); cancel() }
}

// Moved reports whether the guest's address has changed since ctx was marked. A second identity at
// the same address does not count. If no address can be read, every identity counts.
func Moved(ctx context.Context) bool {
	m, ok := ctx.Value(markKey{}).(mark)
	if !ok {
		return false
	}
	now := m.guest.now()
	if now.known && m.began.known {
		return now.cid != m.began.cid
	}
	return now.identities != m.began.identities
}
