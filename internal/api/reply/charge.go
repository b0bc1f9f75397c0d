package reply

import (
	"context"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

// Max is the memory that one request may hold: its body, and its answer in place of that.
const Max = 64 << 20

// Small answers are counted and never refused. They fit into the buffers of a connection, so that their
// clients need not read for the request to end.
const Small = 4 << 10

// Stream is the cost of an answer whose bytes pass through a buffer.
const Stream = 64 << 10

// Charge counts an answer to a request, in place of all that the request held before. It returns an error
// if the tenant's share has no room for it. The answer to a request that has changed something is counted
// and not refused: its sender would repeat the change.
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

// ChargeStream counts an answer that is not kept. It returns an error if the tenant's share is used up.
func ChargeStream(ctx context.Context) error {
	if !membudget.From(ctx).Charge(Stream) {
		return Full()
	}
	return nil
}

// Full returns the error of a request that would hold more than its tenant's share has left.
func Full() error {
	return full{sandbox.Errorf(sandbox.ErrBusy, "", "requests and answers in flight hold too much of the daemon's "+
		"memory: read answers that are open, or send fewer requests at the same time")}
}

// full has a time after which to try again.
type full struct{ error }

func (f full) Unwrap() error { return f.error }

// RetryAfter is read by the APIs.
func (f full) RetryAfter() time.Duration { return time.Second }
