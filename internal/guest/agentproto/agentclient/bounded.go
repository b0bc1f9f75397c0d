package agentclient

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// Time limits of calls if the caller sets no deadline. Without them, an agent that answers byte by
// byte could keep a call open for ever. Programs, evaluations and transfers are limited only by
// their callers.
const (
	shortCall   = time.Minute
	quiesceCall = 5 * time.Minute // waits for the guest's disks
)

// bounded adds a time limit to a context without a deadline.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// codeOf returns the Connect code for a failure to read an answer: CodeInternal for a protocol
// violation, otherwise CodeUnavailable, because a caller may retry after a lost connection.
func codeOf(err error) connect.Code {
	var broke *agentproto.Violation
	if errors.As(err, &broke) {
		return connect.CodeInternal
	}
	return connect.CodeUnavailable
}
