// Package membudget limits the memory held by requests in progress, for the daemon and for each tenant. It counts
// bytes reported by its callers and allocates no memory itself. Package httpapi owns the daemon's budget. An
// Account is one request's part of it, and is passed in the request's context. Beware: every charge must be
// released; Account.Close does so.
package membudget

import "sync"

// Budget divides a number of bytes among tenants. A tenant may hold at most as much as is still free (a dynamic
// threshold): one tenant gets half of the total, n greedy tenants get 1/(n+1) each, and the same amount remains
// for the next one.
type Budget struct {
	total int64

	mu   sync.Mutex // guards the fields below
	used int64
	by   map[string]int64 // by tenant; empty for the operator
}

// New returns a budget of total bytes.
func New(total int64) *Budget { return &Budget{total: total, by: map[string]int64{}} }

// Charge charges n bytes to a tenant. If they exceed its share, it makes no charge and returns false.
func (b *Budget) Charge(tenant string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[tenant]+n > b.total-b.used-n {
		return false
	}
	b.add(tenant, n)
	return true
}

// ChargeUpTo charges as many of n bytes as the tenant's share has left, and returns their number.
func (b *Budget) ChargeUpTo(tenant string, n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = max(0, min(n, (b.total-b.used-b.by[tenant])/2))
	b.add(tenant, n)
	return n
}

// Used returns the total number of charged bytes.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Release releases n charged bytes.
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
