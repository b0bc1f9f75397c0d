package sandbox

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/ellipsis"
	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/snapshot"
)

// Sentinels that callers branch on. One table in httpapi maps them to HTTP
// status, error code and CLI exit code.
var (
	// ErrNotFound: no snapshot, sandbox or image has that name.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the name is taken, or the object is in a state that forbids the operation.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the request itself is wrong.
	ErrInvalid = errors.New("invalid request")
	// ErrNotRestorable: a snapshot's files are damaged, missing, of another format, or made for another CPU.
	ErrNotRestorable = snapshot.ErrNotRestorable
	// ErrBootFailed: the parent did not get ready; the error text holds the console's last lines.
	ErrBootFailed = errors.New("boot failed")
	// ErrGuestGone: the sandbox's VM has ended or does not answer.
	ErrGuestGone = errors.New("guest is gone")
	// ErrTimeout: the guest did not answer within the caller's limit.
	ErrTimeout = errors.New("timed out")
	// ErrNoSpace: the store's file system is full.
	ErrNoSpace = errors.New("no space left")
	// ErrNoMemory: the host lacks the memory for another sandbox.
	ErrNoMemory = errors.New("not enough memory")
	// ErrBusy: as many operations of that kind as are allowed at once are under way.
	ErrBusy = errors.New("busy")
	// ErrClosing: the daemon is shutting down.
	ErrClosing = errors.New("daemon is shutting down")
)

// Error is an error with a text for people and, when there is something to do
// about it, a hint. errors.Is finds its kind, one of the sentinels.
type Error struct {
	kind  error
	hint  string
	cause error // its text is the error's
}

func (e *Error) Error() string { return e.cause.Error() }

// Hint says what to do about it; it may be empty.
func (e *Error) Hint() string { return e.hint }

func (e *Error) Unwrap() []error { return []error{e.kind, e.cause} }

// Errorf makes an Error of a kind.
func Errorf(kind error, hint, format string, args ...any) error {
	return &Error{kind: kind, hint: hint, cause: fmt.Errorf(format, args...)}
}

// StoreError translates what the store says.
func StoreError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, snapshot.ErrNotFound):
		return Errorf(ErrNotFound, "`forkd snapshot ls` shows the snapshots there are", "%w", err)
	case errors.Is(err, snapshot.ErrExists):
		return Errorf(ErrConflict, "choose another tag, or delete that snapshot first", "%w", err)
	case errors.Is(err, snapshot.ErrTag):
		return Errorf(ErrInvalid, "", "%w", err)
	case errors.Is(err, snapshot.ErrNoDigests):
		return Errorf(ErrConflict, "try again in a moment", "%w", err)
	case IsNoSpace(err):
		return NoSpace(err)
	}
	return err
}

// IsNoSpace reports whether a file system was full.
func IsNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, layer.ErrNoSpace)
}

// NoSpace tells the caller that the store is full.
func NoSpace(err error) error {
	return Errorf(ErrNoSpace, "free some space in the store (delete snapshots or images) and try again; nothing half-written remains", "%w", err)
}

// Ended turns the end of a context into what it means to the caller.
func Ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, context.DeadlineExceeded):
		return Errorf(ErrTimeout, "", "%w", err)
	case errors.Is(err, cause):
		return err
	}
	return fmt.Errorf("%w (%w)", cause, err)
}

// Clip shortens what came from outside for an error's text.
func Clip(s string) string { return ellipsis.Clip(s, 80) }
