package ingress

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// tokenHeaders may carry a private sandbox's token. The first two are taken off; the last
// is passed on, as E2B's clients show it to the agent in the guest as well.
func tokenHeaders() []string {
	return []string{"Forkd-Access-Token", headerTraffic, "X-Access-Token"}
}

// headerTraffic is E2B's.
const headerTraffic = "E2b-Traffic-Access-Token"

// bearer is the token in a request's Authorization, which may be the guest's own.
func bearer(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// errPrivate is a request to a private sandbox that does not show its token. The texts are E2B's.
type errPrivate struct{ wrong bool }

func (e errPrivate) Error() string {
	if e.wrong {
		return "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"
	}
	return "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
}

// admit refuses a request that does not show what its sandbox asks for. One that shows it as
// Authorization loses that header: it is no business of the guest's server.
func (h *Handler) admit(r *http.Request, to Target) error {
	var no errPrivate
	if h.cfg.Guard == nil {
		return no
	}
	access, err := h.cfg.Guard.PortAccess(to.Sandbox, to.Port)
	if err != nil {
		return err
	}
	if access.Public {
		return nil
	}
	for _, name := range tokenHeaders() {
		shown := r.Header.Get(name)
		if opens(shown, access.Token) {
			return nil
		}
		no.wrong = no.wrong || shown != ""
	}
	if opens(bearer(r.Header), access.Token) {
		r.Header.Del("Authorization")
		return nil
	}
	return no
}

// opens reports whether a text is the token of a private sandbox. An empty text opens none, not even
// one whose token is missing.
func opens(shown, token string) bool { return shown != "" && token != "" && equal(shown, token) }

// Admits reports whether a request shows what a port asks for. It changes nothing of the request.
func (h *Handler) Admits(r *http.Request, id string, port uint16) bool {
	return h.admit(&http.Request{Header: r.Header.Clone()}, Target{id, port}) == nil
}

// equal compares digests, so that neither content nor length shows in the time it takes.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
