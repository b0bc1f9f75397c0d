package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/domain/idtoken"
)

// issuerAge is how long a relying party may keep the documents of the issuer. It is short, so that a revoked key is
// forgotten soon.
const issuerAge = 5 * time.Minute

// serveIssuer serves the two documents of the issuer of identity tokens, to anybody: relying parties have no key. The
// documents are OpenID Connect's, and not part of the API's contract.
func (s *Server) serveIssuer(next http.Handler) http.Handler {
	if s.identity == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var document any
		switch r.URL.Path {
		case idtoken.DiscoveryPath:
			document = s.identity.Discovery()
		case idtoken.KeysPath:
			document = s.identity.KeySet()
		default:
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "want GET", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(issuerAge.Seconds())))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_ = json.NewEncoder(w).Encode(document)
	})
}
