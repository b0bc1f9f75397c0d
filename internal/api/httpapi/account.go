package httpapi

import (
	"net/http"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

// maxInFlight limits the memory for request bodies and answers of all requests in flight, in bytes.
const maxInFlight = 512 << 20

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
	if !a.Charge(n * routing.BodyCost) {
		return reply.Full()
	}
	return nil
}
