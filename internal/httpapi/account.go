package httpapi

import (
	"net/http"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/membudget"
)

// maxInFlight is the memory for bodies of requests and outputs of programs, of all requests in flight.
const maxInFlight = 512 << 20

// bodyCost is the memory for a byte of a JSON body: the body and its decoded form.
const bodyCost = 2

// account counts what one request holds of the budget. One goroutine uses it.
type account struct {
	budget *membudget.Budget
	tenant string
	held   int64
}

// release ends the request's charges.
func (a *account) release() {
	if a.held > 0 {
		a.budget.Release(a.tenant, a.held)
		a.held = 0
	}
}

// chargeBody counts the request's body before any of it is read. Bodies for a guest's agent are
// passed on and not kept.
func (a *account) chargeBody(r *http.Request, tenant string) *failure {
	if a.budget == nil || a.held > 0 || r.ContentLength == 0 || strings.HasPrefix(r.URL.Path, "/v1/sandboxes/") &&
		strings.Contains(r.URL.Path, "/agent/") {
		return nil
	}
	n := int64(api.MaxBodyBytes)
	if r.ContentLength > 0 {
		n = min(n, r.ContentLength)
	}
	if a.tenant = tenant; !a.budget.Charge(tenant, n*bodyCost) {
		return errInFlight()
	}
	a.held = n * bodyCost
	return nil
}

// full reports whether the tenant has no memory left for an output.
func (a *account) full(tenant string) bool {
	if a.budget == nil {
		return false
	}
	if !a.budget.Charge(tenant, leastOutput) {
		return true
	}
	a.budget.Release(tenant, leastOutput)
	return false
}

// leastOutput must be free before a program is started whose output is collected.
const leastOutput = 1 << 20

// keep counts output that is about to be kept, and returns how many of n bytes the tenant's share has room for.
func (a *account) keep(tenant string, n int) int {
	if a.budget == nil {
		return n
	}
	a.tenant = tenant
	room := a.budget.ChargeUpTo(tenant, int64(n))
	a.held += room
	return int(room)
}

// fit makes the charge of a request that of its outputs, in place of the body's and of what was kept, and returns
// as much of their beginnings as the tenant's share has room for, and the number of bytes that it cut off.
func (a *account) fit(tenant string, outputs ...*string) (dropped int64) {
	if a.budget == nil {
		return 0
	}
	var need int64
	for _, out := range outputs {
		need += int64(len(*out))
	}
	a.tenant = tenant
	if more := need - a.held; more > 0 {
		a.held += a.budget.ChargeUpTo(tenant, more)
	} else {
		a.budget.Release(tenant, -more)
		a.held = need
	}
	room := a.held
	for _, out := range outputs {
		n := min(room, int64(len(*out)))
		room -= n
		dropped += int64(len(*out)) - n
		if n < int64(len(*out)) {
			*out = strings.Clone((*out)[:n])
		}
	}
	return dropped
}

func errInFlight() *failure {
	return fail(api.CodeBusy, "", "requests and answers in flight hold too much of the daemon's memory: "+
		"read answers that are open, or send fewer requests at the same time")
}
