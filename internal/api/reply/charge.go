package reply

import (
	"context"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

// Max is the memory that one request may hold: its body, and later its answer, in bytes.
const Max = 64 << 20

// Small answers, in bytes, are counted and never refused. They fit into the buffers of a
// connection, so the request ends even if the client does not read.
const Small = 4 << 10

// Stream is the cost of an answer that passes through a buffer, in bytes.
const Stream = 64 << 10

// Charge replaces a request's charge with the charge for its answer. It returns an error if the
// tenant's share has no space for the answer. The answer to a request that has changed something is
// counted but never refused, because its sender would repeat the change.
func Charge(ctx context.Context, method string, v any) error {
	n, a := Size(v), membudget.From(ctx)
	changes := method != http.MethodGet && method != http.MethodHead
	switch {
	case changes || n <= Small:
		a.Owe(n)
	case a.Most() > 0 && n > a.Most():
		return sandbox.Errorf(sandbox.ErrInvalid, "", "the answer has more than %d MiB: ask for less at a time, with a "+
			"limit or a filter", a.Most()>>20)
	case !a.Settle(n):
		return Full()
	}
	return nil
}

// ChargeStream counts a streamed answer. It returns an error if the tenant's share is used up.
func ChargeStream(ctx context.Context) error {
	if !membudget.From(ctx).Charge(Stream) {
		return Full()
	}
	return nil
}

// Full returns the error of a request that needs more memory than its tenant's share has left.
func Full() error {
	return full{sandbox.Errorf(sandbox.ErrBusy, "", "requests and answers in flight hold too much of the daemon's "+
		"memory: read answers that are open, or send fewer requests at the same time")}
}

// full has a retry time.
type full struct{ error }

func (f full) Unwrap() error { return f.error }

// RetryAfter returns the wait before a retry. The APIs call it.
func (f full) RetryAfter() time.Duration { return time.Second }
