package httpapi

import (
	"context"
	"log/slog"

	"github.com/forkd/forkd/internal/leaf/environ"
)

// ids returns the IDs of the request and its trace for a line of the log.
func (n *notes) ids() slog.Attr {
	attrs := []slog.Attr{slog.String("request", n.id)}
	if id := n.trace.TraceID(); id != "" {
		attrs = append(attrs, slog.String("trace", id))
	}
	return slog.GroupAttrs("", attrs...)
}

// traced adds the request's trace context to a program's environment, unless the client set it there or the
// environment is full.
func traced(ctx context.Context, env map[string]string) map[string]string {
	added := note(ctx).trace.AddTo(env)
	if environ.Check(added) != nil {
		return env
	}
	return added
}
