package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/internal/api/apierror"
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
	if f, ok := v.(*apierror.Error); ok {
		f.RequestID = requestID(ctx.Context())
	}
	return v, nil
}
