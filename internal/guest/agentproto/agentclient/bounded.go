package agentclient

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// Time limits of calls whose caller sets none: an agent that answers byte by byte would
// hold them for ever. Programs, evaluations and transfers have their callers' limits only.
const (
	shortCall   = time.Minute
	quiesceCall = 5 * time.Minute // it waits for the guest's disks
)

// bounded adds a time limit to a context that has none.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// codeOf is the code of a failure to read an answer. A lost connection may be tried again.
func codeOf(err error) connect.Code {
	var broke *agentproto.Violation
	if errors.As(err, &broke) {
		return connect.CodeInternal
	}
	return connect.CodeUnavailable
}
