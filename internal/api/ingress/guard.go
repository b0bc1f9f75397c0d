package ingress

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// tokenHeaders returns the headers that may carry a private sandbox's token. The first two are
// removed. The last is passed on, because E2B's clients also show it to the agent in the guest.
func tokenHeaders() []string {
	return []string{"Forkd-Access-Token", headerTraffic, "X-Access-Token"}
}

// headerTraffic is E2B's header.
const headerTraffic = "E2b-Traffic-Access-Token"

// bearer returns the token in a request's Authorization, which may be for the guest's own server.
func bearer(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// errPrivate reports a request to a private sandbox without its token. The texts are E2B's.
type errPrivate struct{ wrong bool }

func (e errPrivate) Error() string {
	if e.wrong {
		return "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"
	}
	return "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
}

// admit refuses a request without the token its sandbox requires. If the token is in Authorization,
// admit removes that header, because it is not for the guest's server.
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

// opens reports whether a text is the token of a private sandbox. An empty text never is, even if
// the sandbox's token is missing.
func opens(shown, token string) bool { return shown != "" && token != "" && equal(shown, token) }

// Admits reports whether a request shows the token a port requires. It does not change the request.
func (h *Handler) Admits(r *http.Request, id string, port uint16) bool {
	return h.admit(&http.Request{Header: r.Header.Clone()}, Target{Sandbox: id, Port: port}) == nil
}

// equal compares digests, to make the time independent of content and length.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
