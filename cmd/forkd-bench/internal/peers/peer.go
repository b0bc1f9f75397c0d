package peers

import (
	"context"
	"fmt"
)

// Peer makes guests of one kind.
type Peer interface {
	// Name names the program and the mode, such as "runc run".
	Name() string
	// Available returns the reason why the peer cannot run on this host, or nil.
	Available() error
	// Prepare does the one-time work before the first guest, such as a checkpoint.
	Prepare(ctx context.Context) error
	// Start makes guest i, from 0. When it returns, the guest has run and waits for a question.
	Start(ctx context.Context, i int) (Guest, error)
	// Close removes the files from Prepare.
	Close() error
}

// Guest is a running guest.
type Guest interface {
	// Ask makes Python in the guest compute a result, and checks the answer.
	Ask(ctx context.Context) error
	// Processes returns the host processes of this guest alone.
	Processes() []int
	// Close ends the guest.
	Close() error
}

// NotHereError is the reason why a peer does not take part.
type NotHereError struct{ Reason string }

func (e *NotHereError) Error() string { return e.Reason }

// missing returns the NotHereError of a peer without a program or a file.
func missing(format string, args ...any) error { return &NotHereError{fmt.Sprintf(format, args...)} }

// question is an expression for a guest's Python, and answer its value.
const question, answer = "6 * 7", "42"

// server is the Python program of guests without an agent. It evaluates a line at a time.
const server = "import sys\nfor line in sys.stdin: print(eval(line), flush=True)"
