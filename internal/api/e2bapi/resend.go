package e2bapi

import (
	"net/http"
)

// resender repeats a read-only request if a pause of its sandbox cut it off, and traffic resumes
// the sandbox.
type resender struct {
	h    *Handler
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t resender) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil || !replayable(r) {
		return resp, err
	}
	id := targetOf(r.Context()).ID
	info, getErr := t.h.opt.Engine.Get(id)
	if getErr != nil || stateOf(info) != statePaused || t.h.opt.Lives.Wake(r.Context(), id) != nil {
		return nil, err
	}
	return t.next.RoundTrip(r)
}

// replayable reports whether a request may be sent twice.
func replayable(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.Body == nil || r.Body == http.NoBody) &&
		r.Context().Err() == nil
}
