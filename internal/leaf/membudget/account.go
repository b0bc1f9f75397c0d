package membudget

import (
	"context"
	"sync"
)

// Account counts a request's charge to a budget, on behalf of its tenant. Its methods are safe for concurrent
// use. A nil Account does not count and has no limit.
type Account struct {
	budget *Budget
	most   int64 // limit of one request

	mu     sync.Mutex // guards the fields below
	tenant string     // empty for the operator
	held   int64
	closed bool // the request has ended, so no more is charged
}

// Account returns the account of a new request. The request may hold at most this many bytes.
func (b *Budget) Account(most int64) *Account { return &Account{budget: b, most: most} }

type accountKey struct{}

// With returns a context with an account.
func With(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// From returns the account of a request's context, or nil.
func From(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}

// Of sets the tenant. It is called before the first charge.
func (a *Account) Of(tenant string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held == 0 {
		a.tenant = tenant
	}
}

// Most returns the number of bytes the request may hold; 0 means no limit.
func (a *Account) Most() int64 {
	if a == nil {
		return 0
	}
	return a.most
}

// Held returns the number of charged bytes.
func (a *Account) Held() int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// Charge charges n more bytes. If there is no room for them, it makes no charge and returns false.
func (a *Account) Charge(n int64) bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.held+n > a.most || !a.budget.Charge(a.tenant, n) {
		return false
	}
	a.held += n
	return true
}

// ChargeUpTo charges as many of n bytes as there is room for, and returns their number.
func (a *Account) ChargeUpTo(n int64) int64 {
	if a == nil {
		return n
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0
	}
	n = a.budget.ChargeUpTo(a.tenant, min(n, a.most-a.held))
	a.held += n
	return n
}

// Settle sets the charge to n bytes, replacing all previous charges. If there is no room for them, it changes
// nothing and returns false.
func (a *Account) Settle(n int64) bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || n > a.most || n > a.held && !a.budget.Charge(a.tenant, n-a.held) {
		return false
	}
	if n < a.held {
		a.budget.Release(a.tenant, a.held-n)
	}
	a.held = n
	return true
}

// Owe is Settle for an answer that must be sent. The charge may exceed the share, and then delays the tenant's
// next requests.
func (a *Account) Owe(n int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.budget.Release(a.tenant, a.held-n)
	a.held = n
}

// Full reports whether there is no room for n more bytes.
func (a *Account) Full(n int64) bool {
	if !a.Charge(n) {
		return true
	}
	a.Release(n)
	return false
}

// Release releases n charged bytes.
func (a *Account) Release(n int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n = min(n, a.held)
	a.budget.Release(a.tenant, n)
	a.held -= n
}

// Close ends the account and releases all charges.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.budget.Release(a.tenant, a.held)
	a.held, a.closed = 0, true
}
