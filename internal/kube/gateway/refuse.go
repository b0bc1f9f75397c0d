package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"

	"github.com/forkd/forkd/api"
)

// failure is an error of the gateway itself.
type failure struct {
	code   api.Code
	reason api.Reason
	text   string
}

func (f failure) Error() string { return f.text }

func failf(code api.Code, reason api.Reason, format string, args ...any) failure {
	return failure{code, reason, fmt.Sprintf(format, args...)}
}

// refuse answers in the error format of the API that the client speaks.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, f failure) {
	if r.Context().Err() != nil && f.code != api.CodeRequestTimeout { // a read that times out ends the context, too
		panic(http.ErrAbortHandler) // the client has left, or the gateway ends
	}
	id := newID()
	h := w.Header()
	h.Set(api.HeaderError, string(f.code))
	h.Set(api.HeaderRequestID, id)
	if f.code == api.CodeBusy || f.reason == api.ReasonNoNode {
		h.Set("Retry-After", "1")
	}
	g.cfg.Log.Debug("refused", "method", r.Method, "code", f.code, "reason", f.reason, "error", f.text, "request", id)
	status := f.code.Status()
	if slices.Contains([]string{"sandboxes", "snapshots", "templates", "v2", "v3"}, segments(r.URL)[0]) {
		writeJSON(w, status, map[string]any{"code": status, "message": f.text})
		return
	}
	writeJSON(w, status, api.Error{Message: f.text, Code: f.code, Reason: f.reason, RequestID: id})
}

// newID returns the id of a request.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

func unreachable(node string) failure {
	return failf(api.CodeGuestGone, api.ReasonNodeUnreachable, "node %s cannot be reached", node)
}
