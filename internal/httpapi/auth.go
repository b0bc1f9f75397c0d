package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"

	"github.com/forkd/forkd/api"
)

// CheckToken refuses tokens that protect nothing: left over from an example,
// or too short.
func CheckToken(token string) error {
	for _, prefix := range []string{"REPLACE_ME_", "CHANGE_ME_"} {
		if strings.HasPrefix(token, prefix) {
			return fmt.Errorf("token begins with %s: it is an example's, replace it", prefix)
		}
	}
	if len(token) < api.MinTokenBytes {
		return fmt.Errorf("token has %d bytes, want at least %d", len(token), api.MinTokenBytes)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("token has characters that do not fit into a header: want printable ASCII without spaces")
	}
	return nil
}

// authorize lets through whom the listener's access admits, and GET /healthz.
func (s *Server) authorize(access Access, next http.Handler) http.Handler {
	right := tokenCheck(access.Token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		principal, refusal := access.admit(r, right)
		if refusal != nil && r.URL.Path != "/healthz" {
			if refusal.status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="forkd"`)
			}
			writeFailure(w, s.failed(r.Context(), refusal))
			return
		}
		note(r.Context()).principal = principal
		next.ServeHTTP(w, r)
	})
}

// admit says who a client is, or why it is refused. A token that is shown must be
// right, also where none is asked for: whoever shows one believes to need it.
func (a Access) admit(r *http.Request, right func(string) bool) (principal string, _ *failure) {
	shown := r.Header.Get("Authorization")
	token, isToken := bearer(shown)
	switch {
	case shown != "" && a.Token == "":
		return "", fail(api.CodeUnauthorized, api.ReasonTokenUnwanted,
			"a token was shown, but this daemon has none")
	case isToken && right(token):
		return "token", nil
	case isToken:
		return "", fail(api.CodeUnauthorized, "", "the token is wrong")
	case shown == "" && a.Local && trustedPeer(r):
		return "local", nil
	case a.Local && a.Token == "":
		return "", fail(api.CodeForbidden, api.ReasonSocketForeign,
			"the daemon's socket is another user's, and it has no token that could let others in")
	}
	return "", fail(api.CodeUnauthorized, "", "the daemon wants a token (Authorization: Bearer)")
}

// tokenCheck compares digests, so that neither content nor length of the token
// shows in the time it takes.
func tokenCheck(token string) func(string) bool {
	want := sha256.Sum256([]byte(token))
	return func(got string) bool {
		sum := sha256.Sum256([]byte(got))
		return token != "" && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
	}
}

func bearer(header string) (string, bool) {
	scheme, token, _ := strings.Cut(header, " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer") && token != ""
}
