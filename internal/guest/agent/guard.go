package agent

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
)

// unauthorized is the text that clients know from E2B.
const unauthorized = "unauthorized access, please provide a valid access token or method signing if supported"

// guard lets through who may ask. Two tokens exist: the configured one guards
// everything (a test bench on TCP); the identity's guards what clients of this
// one sandbox use, and not forkd's own service, whose caller is the host.
func (a *Agent) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			next.ServeHTTP(w, r)
			return
		}
		if a.cfg.Token != "" {
			if !same(shown(r), a.cfg.Token) {
				writeError(w, http.StatusUnauthorized, unauthorized)
				return
			}
		} else if !a.admits(r) {
			writeError(w, http.StatusUnauthorized, unauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admits checks the identity's token. /files checks for itself, since a signed
// URL is another way in.
func (a *Agent) admits(r *http.Request) bool {
	if r.URL.Path == "/files" || r.URL.Path == "/files/link" || hosts(r.URL.Path) {
		return true
	}
	token := a.rec.Token()
	return token == "" || same(r.Header.Get("X-Access-Token"), token)
}

// hosts reports that a path is of a service that is for the host alone.
func hosts(path string) bool {
	return strings.HasPrefix(path, "/"+agentv1connect.AgentName+"/") ||
		strings.HasPrefix(path, "/"+agentv1connect.InventoryName+"/")
}

func shown(r *http.Request) string {
	if t := r.Header.Get("X-Access-Token"); t != "" {
		return t
	}
	t, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return t
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// writeError is the shape of errors of the plain routes.
func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, message})
}
