package httpapi

import (
	"net/http"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

// maxInFlight limits the memory for request bodies and answers of all requests in flight, in bytes.
const maxInFlight = 512 << 20

// bodyCost is the memory for one byte of a JSON body: the body and its decoded form.
const bodyCost = 2

// chargeBody charges the request's body before it is read. Bodies for a guest's agent are not
// charged, because they are passed on and not stored.
func chargeBody(r *http.Request, tenant string) error {
	a := membudget.From(r.Context())
	a.Of(tenant)
	if a.Held() > 0 || r.ContentLength == 0 || strings.HasPrefix(r.URL.Path, "/v1/sandboxes/") &&
		strings.Contains(r.URL.Path, "/agent/") {
		return nil
	}
	n := int64(api.MaxBodyBytes)
	if r.ContentLength > 0 {
		n = min(n, r.ContentLength)
	}
	if !a.Charge(n * bodyCost) {
		return reply.Full()
	}
	return nil
}

// leastOutput is the free memory required before the daemon starts a program with collected output,
// or compares snapshots. It is in bytes.
const leastOutput = 1 << 20

// fit replaces a request's charge for the body and for stored output with the charge for its
// outputs. It cuts the ends of the outputs that exceed the tenant's share, and returns the number
// of bytes it cut off.
func fit(a *membudget.Account, outputs ...*string) (dropped int64) {
	if a == nil {
		return 0
	}
	var need int64
	for _, out := range outputs {
		need += int64(len(*out))
	}
	held := a.Held()
	if more := need - held; more > 0 {
		held += a.ChargeUpTo(more)
	} else {
		a.Release(-more)
		held = need
	}
	room := held
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
