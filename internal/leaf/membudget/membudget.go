// Package membudget limits the memory that requests in flight hold, for the daemon and for each
// tenant. It counts bytes that its callers report; it allocates none. Package httpapi owns the
// daemon's budget; an Account is one request's part of it and travels in the request's context. The
// trap: every charge needs its release, which is what Account.Close is for.
package membudget

import "sync"

// Budget divides a number of bytes among tenants. A tenant may hold at most as much as is still
// free (a dynamic threshold): one tenant gets half of the total, n greedy tenants get 1/(n+1)
// each, and as much remains for the next one.
type Budget struct {
	total int64

	mu   sync.Mutex // guards the fields below
	used int64
	by   map[string]int64 // by tenant; empty: the operator
}

// New returns a budget of total bytes.
func New(total int64) *Budget { return &Budget{total: total, by: map[string]int64{}} }

// Charge counts n bytes for a tenant. It returns false, and counts none, if they exceed its share.
func (b *Budget) Charge(tenant string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[tenant]+n > b.total-b.used-n {
		return false
	}
	b.add(tenant, n)
	return true
}

// ChargeUpTo counts as many of n bytes as the tenant's share has left, and returns their number.
func (b *Budget) ChargeUpTo(tenant string, n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = max(0, min(n, (b.total-b.used-b.by[tenant])/2))
	b.add(tenant, n)
	return n
}

// Used returns the number of bytes that are charged, of all tenants.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Release takes back n bytes of a charge.
func (b *Budget) Release(tenant string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(tenant, -n)
}

func (b *Budget) add(tenant string, n int64) {
	b.used += n
	if b.by[tenant] += n; b.by[tenant] == 0 {
		delete(b.by, tenant)
	}
}
