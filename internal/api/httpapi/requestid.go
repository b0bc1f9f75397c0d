package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
)

// newRequestID names one request, in its answer, in the log and in the audit log.
func newRequestID() string {
	var b [8]byte
	rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// requestID is that of the request that a context is of; empty: it is of none.
func requestID(ctx context.Context) string { return note(ctx).id }

// withRequestID puts the request's ID into errors that huma writes.
func withRequestID(ctx huma.Context, _ string, v any) (any, error) {
	if f, ok := v.(*failure); ok {
		f.RequestID = requestID(ctx.Context())
	}
	return v, nil
}

// named as in the header of the answer.
func (f *failure) named(h http.Header) *failure {
	f.RequestID = h.Get(api.HeaderRequestID)
	return f
}
