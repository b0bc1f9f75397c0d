package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// Sentinels for callers to branch on. One table in httpapi maps them to HTTP status, error code and CLI exit
// code. The table also maps the sentinels of storeerr.
var (
	// ErrNotFound: no snapshot, sandbox or image has that name.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the name is taken, or the object is in a state that forbids the operation.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the request itself is wrong.
	ErrInvalid = errors.New("invalid request")
	// ErrBootFailed: the parent did not become ready; the error text holds the console's last lines.
	ErrBootFailed = errors.New("boot failed")
	// ErrGuestGone: the sandbox's VM has ended or does not answer.
	ErrGuestGone = errors.New("guest is gone")
	// ErrPortClosed: the sandbox runs, but no server accepts connections on the port.
	ErrPortClosed = errors.New("port is not open")
	// ErrTimeout: the guest did not answer within the caller's limit.
	ErrTimeout = errors.New("timed out")
	// ErrNoSpace: the store's file system is full.
	ErrNoSpace = errors.New("no space left")
	// ErrNoMemory: the host lacks the memory for another sandbox.
	ErrNoMemory = errors.New("not enough memory")
	// ErrNoResources: the host lacks descriptors or threads for another sandbox.
	ErrNoResources = errors.New("not enough resources")
	// ErrBusy: the limit on concurrent operations of this kind is reached.
	ErrBusy = errors.New("busy")
	// ErrForbidden: the caller can see the object, but may not do this.
	ErrForbidden = errors.New("forbidden")
	// ErrQuota: one of the caller's quotas is used up.
	ErrQuota = errors.New("quota exceeded")
	// ErrUnsupported: this host does not support the operation.
	ErrUnsupported = errors.New("not supported on this host")
	// ErrDraining: the daemon is being drained and takes no new sandboxes.
	ErrDraining = errors.New("daemon is being drained")
	// ErrClosing: the daemon is shutting down.
	ErrClosing = errors.New("daemon is shutting down")
)

// Error is an error with a text for people. errors.Is finds its kind, one of the sentinels. The reason, if there
// is one, distinguishes errors of the same kind.
type Error struct {
	kind    error
	reason  Reason
	details map[string]string // keyed by the names on the reason's documentation page
	cause   error             // its text is the error's text
}

func (e *Error) Error() string { return e.cause.Error() }

// Reason distinguishes the error from others of its kind. It may be empty.
func (e *Error) Reason() Reason { return e.reason }

// ReasonName returns the reason as a string, for callers that do not import this package.
func (e *Error) ReasonName() string { return string(e.reason) }

// Details returns the names belonging to the reason, such as a snapshot's tag.
func (e *Error) Details() map[string]string { return e.details }

func (e *Error) Unwrap() []error { return []error{e.kind, e.cause} }

// Errorf returns an Error of a kind. The reason may be empty.
func Errorf(kind error, reason Reason, format string, args ...any) error {
	return &Error{kind: kind, reason: reason, cause: fmt.Errorf(format, args...)}
}

// Detailed returns the error with one more detail.
func Detailed(err error, name, value string) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	more := *e
	more.details = map[string]string{name: value}
	maps.Copy(more.details, e.details)
	return &more
}

// StoreError translates an error of the store.
func StoreError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storeerr.ErrNotFound):
		return Errorf(ErrNotFound, ReasonSnapshotNotFound, "%w", err)
	case errors.Is(err, storeerr.ErrExists):
		return Errorf(ErrConflict, ReasonTagTaken, "%w", err)
	case errors.Is(err, storeerr.ErrTag):
		return Errorf(ErrInvalid, "", "%w", err)
	case errors.Is(err, storeerr.ErrNoDigests):
		return Errorf(ErrConflict, ReasonDigestsNotReady, "%w", err)
	case IsNoSpace(err):
		return NoSpace(err)
	}
	return err
}

// IsNoSpace reports whether the cause was a full file system.
func IsNoSpace(err error) bool {
	return storeerr.IsNoSpace(err)
}

// NoSpace returns an ErrNoSpace: the store is full.
func NoSpace(err error) error {
	return Errorf(ErrNoSpace, ReasonStoreFull, "%w", err)
}

// Ended translates the end of a context into an error for the caller.
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

// Clip shortens text from outside for use in an error.
func Clip(s string) string { return ellipsis.Clip(s, 80) }
