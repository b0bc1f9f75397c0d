package client

import (
	"context"
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

// Headers of W3C Trace Context.
const (
	headerTraceParent = "Traceparent"
	headerTraceState  = "Tracestate"
)

// traceKey is the key of a traceparent in a context, and stateKey that of a tracestate.
type (
	traceKey struct{}
	stateKey struct{}
)

// WithTraceParent returns a context for calls that continue a trace. parent is a W3C traceparent, such
// as the one a propagator of OpenTelemetry injects. If it is not valid, calls continue no trace.
func WithTraceParent(ctx context.Context, parent string) context.Context {
	if tracecontext.FromHeader(http.Header{headerTraceParent: {parent}}).TraceID() == "" {
		parent = ""
	}
	return context.WithValue(ctx, traceKey{}, parent)
}

// WithTraceState returns a context for calls that send a W3C tracestate beside the traceparent of WithTraceParent. The
// daemon ignores one that is not valid.
func WithTraceState(ctx context.Context, state string) context.Context {
	if strings.ContainsFunc(state, func(r rune) bool { return r < ' ' || r > '~' }) {
		state = ""
	}
	return context.WithValue(ctx, stateKey{}, state)
}

// trace adds the context's trace to a request, unless the caller has set the header.
func trace(r *http.Request) {
	parent, _ := r.Context().Value(traceKey{}).(string)
	if parent == "" || r.Header.Get(headerTraceParent) != "" {
		return
	}
	r.Header.Set(headerTraceParent, parent)
	if state, _ := r.Context().Value(stateKey{}).(string); state != "" {
		r.Header.Set(headerTraceState, state)
	}
}
