package peers

import (
	"context"
	"fmt"
)

// Peer makes guests of one kind.
type Peer interface {
	// Name says what makes them and how, such as "runc run".
	Name() string
	// Available says why it cannot run on this host; nil: it can.
	Available() error
	// Prepare does once what comes before guests are asked for, such as a checkpoint.
	Prepare(ctx context.Context) error
	// Start makes guest i, from 0, which has run by then, and waits to be asked.
	Start(ctx context.Context, i int) (Guest, error)
	// Close removes what Prepare made.
	Close() error
}

// Guest is one that was started.
type Guest interface {
	// Ask has Python in the guest compute something; the answer is checked.
	Ask(ctx context.Context) error
	// Processes are those of the host that there are for this guest alone.
	Processes() []int
	// Close ends the guest.
	Close() error
}

// NotHereError is why a peer does not take part.
type NotHereError struct{ Reason string }

func (e *NotHereError) Error() string { return e.Reason }

// missing is the NotHereError of a peer without a program or a file.
func missing(format string, args ...any) error { return &NotHereError{fmt.Sprintf(format, args...)} }

// question is what a guest's Python is asked, and the answer.
const question, answer = "6 * 7", "42"

// server is the Python of guests that have no agent: it evaluates a line at a time.
const server = "import sys\nfor line in sys.stdin: print(eval(line), flush=True)"
