package agent

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/guest/agentproto/servicewire"
	"github.com/forkd/forkd/internal/guest/agentproto/volumewire"
)

// unauthorized is the error text of E2B, as its clients expect.
const unauthorized = "unauthorized access, please provide a valid access token or method signing if supported"

// guard checks the token of requests. There are two tokens. The configured token protects all
// routes (a test bench on TCP). The identity's token protects the routes for clients of this
// sandbox, but not forkd's own service, which only the host calls.
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

// admits checks the identity's token. /files does its own checks, because it also accepts a signed
// URL.
func (a *Agent) admits(r *http.Request) bool {
	if r.URL.Path == "/files" || r.URL.Path == "/files/link" || hosts(r.URL.Path) {
		return true
	}
	token := a.rec.Token()
	return token == "" || same(r.Header.Get("X-Access-Token"), token)
}

// hosts reports whether a path belongs to a service for the host only.
func hosts(path string) bool {
	return path == servicewire.Path || strings.HasPrefix(path, servicewire.Path+"/") ||
		path == volumewire.Path || strings.HasPrefix(path, volumewire.Path+"/") ||
		strings.HasPrefix(path, "/"+agentv1connect.AgentName+"/") ||
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

// writeError sends an error in the form of the plain routes.
func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, message})
}
