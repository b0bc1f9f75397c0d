package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

// headerTraceParent is the header of W3C Trace Context.
const headerTraceParent = "Traceparent"

// traceKey is the key of a traceparent in a context.
type traceKey struct{}

// WithTraceParent returns a context for calls that continue a trace. parent is a W3C traceparent, such
// as the one a propagator of OpenTelemetry injects. If it is not valid, calls continue no trace.
func WithTraceParent(ctx context.Context, parent string) context.Context {
	if tracecontext.FromHeader(http.Header{headerTraceParent: {parent}}).TraceID() == "" {
		parent = ""
	}
	return context.WithValue(ctx, traceKey{}, parent)
}

// trace adds the context's trace to a request, unless the caller has set the header.
func trace(r *http.Request) {
	if parent, _ := r.Context().Value(traceKey{}).(string); parent != "" && r.Header.Get(headerTraceParent) == "" {
		r.Header.Set(headerTraceParent, parent)
	}
}
