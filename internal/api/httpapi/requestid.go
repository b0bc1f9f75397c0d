package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
)

// newRequestID returns the ID of one request, for its answer, the log and the audit log.
func newRequestID() string {
	var b [8]byte
	rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// requestID returns the ID of a context's request. It is empty outside a request.
func requestID(ctx context.Context) string { return note(ctx).id }

// withRequestID adds the request's ID to errors huma writes.
func withRequestID(ctx huma.Context, _ string, v any) (any, error) {
	if f, ok := v.(*failure); ok {
		f.RequestID = requestID(ctx.Context())
	}
	return v, nil
}

// named sets the request ID from the header of the answer.
func (f *failure) named(h http.Header) *failure {
	f.RequestID = h.Get(api.HeaderRequestID)
	return f
}
