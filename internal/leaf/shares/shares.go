// Package shares divides a fixed number of slots fairly among tenants, and a tenant's part among its sandboxes,
// so that no holder can starve another. It needs no list of holders in advance: a holder may take more only if at
// least as much as it holds stays free (a dynamic threshold, as switches use for shared buffers). A part of the
// slots is reserved for holders with few slots. So one greedy tenant gets three eighths, two get a quarter each,
// and a new tenant still finds room. Beware: if very many sandboxes of one tenant take all they can, the next one
// has to wait for its turn.
package shares

import (
	"context"
	"fmt"
	"sync"
)

// Key identifies the holder of a slot.
type Key struct {
	Tenant  string // empty for the operator
	Sandbox string
}

// Pool is a fixed number of slots. Its methods are safe for concurrent use.
type Pool struct {
	capacity int

	mu      sync.Mutex // guards the fields below; no I/O under it
	used    int
	tenants map[string]*tenant
}

// tenant holds slots through its sandboxes. It is listed while it holds or waits for slots.
type tenant struct {
	used      int
	sandboxes map[string]*sandbox
	waiting   []*sandbox // with waiters, in the order of their turns
}

type sandbox struct {
	used    int
	waiters []chan struct{} // first come, first served; closed when its slot is granted
}

// New returns a pool of free slots.
func New(capacity int) *Pool {
	return &Pool{capacity: capacity, tenants: map[string]*tenant{}}
}

// Try takes n slots if they are within the holder's share, and reports whether it did.
func (p *Pool) Try(k Key, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, s := p.findLocked(k)
	ok := len(s.waiters) == 0 && p.mayLocked(t, s, n)
	if ok {
		p.takeLocked(t, s, n)
	}
	p.dropLocked(k, t, s)
	return ok
}

// Wait takes one slot as soon as it is within the holder's share. A tenant's waiting sandboxes take turns.
func (p *Pool) Wait(ctx context.Context, k Key) error {
	p.mu.Lock()
	t, s := p.findLocked(k)
	if len(s.waiters) == 0 && p.mayLocked(t, s, 1) {
		p.takeLocked(t, s, 1)
		p.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if s.waiters = append(s.waiters, turn); len(s.waiters) == 1 {
		t.waiting = append(t.waiting, s)
	}
	p.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		p.giveUp(k, turn)
		return fmt.Errorf("wait for a slot: %w", context.Cause(ctx))
	}
}

// giveUp removes a waiter from its queue, or frees the slot if it was granted meanwhile.
func (p *Pool) giveUp(k Key, turn chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, s := p.findLocked(k)
	for i, w := range s.waiters {
		if w == turn {
			s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
			if len(s.waiters) == 0 {
				t.forgetWaiting(s)
			}
			p.dropLocked(k, t, s)
			return
		}
	}
	p.freeLocked(k, 1)
}

// Free returns n slots.
func (p *Pool) Free(k Key, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeLocked(k, n)
}

// Used returns the number of slots taken.
func (p *Pool) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

func (p *Pool) findLocked(k Key) (*tenant, *sandbox) {
	t := p.tenants[k.Tenant]
	if t == nil {
		t = &tenant{sandboxes: map[string]*sandbox{}}
		p.tenants[k.Tenant] = t
	}
	s := t.sandboxes[k.Sandbox]
	if s == nil {
		s = &sandbox{}
		t.sandboxes[k.Sandbox] = s
	}
	return t, s
}

// Fractions of the capacity. A tenant or sandbox is small if it holds no more than this fraction; one slot is
// always small.
const (
	tenantReserve  = 4   // for small tenants
	sandboxReserve = 16  // for a tenant's small sandboxes, from its remaining share
	smallTenant    = 64  // so 16 of them fit into the reserve
	smallSandbox   = 512 // a few
)

// mayLocked decides whether to grant n slots. left is the number of slots free after the grant. A tenant that is
// not small may hold at most left without the reserve. A sandbox that is not small may hold at most the number
// that its tenant may still take.
func (p *Pool) mayLocked(t *tenant, s *sandbox, n int) bool {
	left := p.capacity - p.used - n
	if t.used == 0 || t.used+n <= p.capacity/smallTenant {
		return left >= 0
	}
	room := left - p.capacity/tenantReserve - (t.used + n) // for the tenant
	if s.used == 0 || s.used+n <= p.capacity/smallSandbox {
		return room >= 0
	}
	return s.used+n <= room-p.capacity/sandboxReserve
}

func (p *Pool) takeLocked(t *tenant, s *sandbox, n int) {
	p.used, t.used, s.used = p.used+n, t.used+n, s.used+n
}

func (p *Pool) freeLocked(k Key, n int) {
	t, s := p.findLocked(k)
	n = min(n, s.used) // a larger n would be the holder's mistake, and must not create room
	p.used, t.used, s.used = p.used-n, t.used-n, s.used-n
	p.dropLocked(k, t, s)
	for _, t := range p.tenants {
		p.wakeLocked(t)
	}
}

// wakeLocked grants slots to a tenant's waiters, one of each sandbox in turn.
func (p *Pool) wakeLocked(t *tenant) {
	for idle := 0; idle < len(t.waiting); {
		s := t.waiting[0]
		t.waiting = t.waiting[1:]
		if !p.mayLocked(t, s, 1) {
			t.waiting = append(t.waiting, s)
			idle++
			continue
		}
		p.takeLocked(t, s, 1)
		close(s.waiters[0])
		if s.waiters = s.waiters[1:]; len(s.waiters) > 0 {
			t.waiting = append(t.waiting, s)
		}
		idle = 0
	}
}

func (t *tenant) forgetWaiting(s *sandbox) {
	for i, other := range t.waiting {
		if other == s {
			t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
			return
		}
	}
}

// dropLocked removes holders without slots and waiters.
func (p *Pool) dropLocked(k Key, t *tenant, s *sandbox) {
	if s.used == 0 && len(s.waiters) == 0 {
		delete(t.sandboxes, k.Sandbox)
	}
	if len(t.sandboxes) == 0 {
		delete(p.tenants, k.Tenant)
	}
}
