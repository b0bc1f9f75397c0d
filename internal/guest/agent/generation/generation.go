// Package generation tells a guest from its clones. A running guest may be
// cloned with requests under way; in the clone their connections are reset,
// which looks as if every caller had left, while the callers are well and talk
// to the source. It owns the mark that each request carries and the comparison;
// what follows from it is decided where the request is served. The trap: the
// address must be read after the connection broke and not before, as the
// kernel takes the clone's address first and resets sockets then.
package generation

import (
	"context"
	"sync/atomic"
)

// Addresser is what gives a guest's own address, which differs in each clone.
type Addresser interface {
	ContextID() (uint32, error)
}

// Guest is this guest, through all the clonings that made it.
type Guest struct {
	addr Addresser
	// identities counts those taken. It tells clones apart where there is no
	// address, and after an address came around again.
	identities atomic.Uint64
}

// New takes the guest's address from addr.
func New(addr Addresser) *Guest { return &Guest{addr: addr} }

// Advance says that the guest has taken another identity.
func (g *Guest) Advance() { g.identities.Add(1) }

// Mark notes in a request's context in which generation it began. It is for
// each request and not for a connection, which may serve some before and some
// after an identity.
func (g *Guest) Mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, markKey{}, mark{g, g.now()})
}

type markKey struct{}

type mark struct {
	guest *Guest
	began point
}

// point is a moment in a guest's descent.
type point struct {
	cid        uint32
	known      bool // cid could be read
	identities uint64
}

func (g *Guest) now() point {
	cid, err := g.addr.ContextID()
	return point{cid, err == nil, g.identities.Load()}
}

// Changed reports whether this guest is a clone of the one in which the
// request of ctx began, so that its caller is the source's. Without a mark, and
// where no address can be read, only an identity changes anything.
func Changed(ctx context.Context) bool {
	m, ok := ctx.Value(markKey{}).(mark)
	if !ok {
		return false
	}
	now := m.guest.now()
	return now.identities != m.began.identities || now.known && m.began.known && now.cid != m.began.cid
}

// Outlive returns a context for what must go on in a clone: it ends with ctx,
// but not when ctx ends because the guest was cloned. A deadline stays.
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

// Moved reports whether the guest's address has changed since ctx was marked:
// an identity that was taken twice moves nothing. Where no address can be read
// every identity does.
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
