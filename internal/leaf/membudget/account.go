package membudget

import (
	"context"
	"sync"
)

// Account counts what one request holds of a budget, on behalf of its tenant. Its methods are safe for
// concurrent use. A nil Account counts nothing and has room for everything.
type Account struct {
	budget *Budget
	most   int64 // that one request may hold

	mu     sync.Mutex // guards the fields below
	tenant string     // empty: the operator
	held   int64
	closed bool // the request has ended: nothing more is charged
}

// Account returns the account of a new request, which may hold at most so many bytes.
func (b *Budget) Account(most int64) *Account { return &Account{budget: b, most: most} }

type accountKey struct{}

// With returns a context that has an account.
func With(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// From returns the account of a request's context; nil if it has none.
func From(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}

// Of names the tenant. It is called before anything is charged.
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

// Most returns the number of bytes that the request may hold; 0: there is no limit.
func (a *Account) Most() int64 {
	if a == nil {
		return 0
	}
	return a.most
}

// Held returns the number of bytes that are charged.
func (a *Account) Held() int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// Charge counts n bytes more. It returns false, and counts none, if there is no room for them.
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

// ChargeUpTo counts as many of n bytes as there is room for, and returns their number.
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

// Settle makes the charge n bytes, in place of all that was charged. It returns false, and changes
// nothing, if there is no room for them.
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

// Owe is Settle for an answer that has to be given: it may exceed the share, and then keeps the
// tenant's next requests waiting.
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

// Full reports whether there is no room for n bytes more.
func (a *Account) Full(n int64) bool {
	if !a.Charge(n) {
		return true
	}
	a.Release(n)
	return false
}

// Release takes back n bytes of what was charged.
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

// Close ends the account and takes back all that was charged.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.budget.Release(a.tenant, a.held)
	a.held, a.closed = 0, true
}
