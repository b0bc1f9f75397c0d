package ingress

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
)

// tokenHeaders may carry a private sandbox's token. The first two are taken off; the last
// is passed on, as E2B's clients show it to the agent in the guest as well.
func tokenHeaders() []string {
	return []string{"Forkd-Access-Token", "E2b-Traffic-Access-Token", "X-Access-Token"}
}

// admits reports whether a request shows what its sandbox asks for.
func (h *Handler) admits(r *http.Request, to Target) bool {
	if h.cfg.Guard == nil {
		return true
	}
	want := h.cfg.Guard.TrafficToken(to.Sandbox, to.Port)
	if want == "" {
		return true
	}
	for _, name := range tokenHeaders() {
		if shown := r.Header.Get(name); shown != "" && equal(shown, want) {
			return true
		}
	}
	return false
}

// equal compares digests, so that neither content nor length shows in the time it takes.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
