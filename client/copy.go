package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"syscall"

	"github.com/forkd/forkd/api"
)

// CopyOptions changes how files are copied.
type CopyOptions struct {
	// User is with whose rights files are read and written in the guest, and whose
	// they are then; empty means the image's user.
	User string
	// FollowLinks copies what links in a directory lead to, and not the links.
	FollowLinks bool
	// Progress is told the bytes of each piece that went over; may be nil.
	Progress func(n int)
	// Total is told how many bytes there are in all, once if that is known in time; may be nil.
	Total func(bytes int64)
	// Arrived is told of each file, directory and link that has come; may be nil. Into a sandbox it is of each that was
	// sent.
	Arrived func()
	// Skipped is told what was left out, and why; may be nil.
	Skipped func(name, why string)
	// Lossy is told if the agent in the sandbox is of an older forkd: times, hard links and holes are lost; may be nil.
	Lossy func()
}

func (o CopyOptions) skip(name, why string) {
	if o.Skipped != nil {
		o.Skipped(name, why)
	}
}

// CopyError says that a tree was copied in part.
type CopyError struct {
	Copied int     // files, links and directories
	Failed []error // one for each that could not be copied, at most maxTold
	More   int     // failures beyond those
}

// StoppedError says that a copy ended before all was copied.
type StoppedError struct {
	// Copied counts files, links and directories. None of the others is there in part, but for files that are written
	// in place (docs/use/cli.md).
	Copied int
	// Unknown says that the sandbox's agent did not tell how many, and Copied is 0.
	Unknown bool
	// Cause is why it ended, such as context.Canceled.
	Cause error
}

func (e *StoppedError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("stopped, and it is not known how much of the copy is there: %v", e.Cause)
	}
	return fmt.Sprintf("stopped after %d files, links and directories, the rest was not copied: %v", e.Copied, e.Cause)
}

// Unwrap gives the reason.
func (e *StoppedError) Unwrap() error { return e.Cause }

// maxTold bounds how many failures are kept.
const maxTold = 100

func (e *CopyError) Error() string {
	return fmt.Sprintf("%d could not be copied, %d were; first: %v", len(e.Failed)+e.More, e.Copied, e.Failed[0])
}

// Unwrap gives the failures.
func (e *CopyError) Unwrap() []error { return e.Failed }

// tally counts what becomes of the parts of a tree.
type tally struct {
	copied int
	failed []error
	more   int
}

// took notes how one part went. The error that it returns ends the copy.
func (t *tally) took(err error) error {
	switch {
	case err == nil:
		t.copied++
		return nil
	case endsCopy(err):
		return err
	case len(t.failed) < maxTold:
		t.failed = append(t.failed, err)
	default:
		t.more++
	}
	return nil
}

// end is the result of the whole.
func (t *tally) end(stopped error) error {
	if stopped != nil && (t.copied > 0 || errors.Is(stopped, context.Canceled)) {
		return &StoppedError{Copied: t.copied, Cause: stopped}
	}
	if stopped == nil && len(t.failed) > 0 {
		return &CopyError{Copied: t.copied, Failed: t.failed, More: t.more}
	}
	return stopped
}

// endsCopy says that what comes after will not go better.
func endsCopy(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ENOSPC) {
		return true
	}
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case api.CodeUnreachable, api.CodeGuestGone, api.CodeTimeout, api.CodeNoSpace, api.CodeClosing:
		return true
	}
	return e.fromDaemon
}

// CopyStream writes what it reads to a file in a sandbox, whose directory must
// be there.
func (c *Client) CopyStream(ctx context.Context, id, target string, content io.Reader, opt CopyOptions) error {
	tree := c.tree(id, opt.User)
	at, err := tree.stat(ctx, target)
	if err != nil {
		return err
	}
	if at.kind == kindMissing {
		if err := tree.needParent(ctx, target); err != nil {
			return err
		}
	}
	if err := tree.upload(ctx, target, 0, counting{content, opt.Progress}); err != nil {
		return fmt.Errorf("copy to %s:%s: %w", id, target, err)
	}
	return nil
}

// needParent checks that the directory for a new file is there: to make it, as
// Upload does, would hide a mistyped name.
func (t guestTree) needParent(ctx context.Context, target string) error {
	dir := path.Dir(strings.TrimRight(target, "/"))
	if strings.HasSuffix(target, "/") {
		dir = strings.TrimRight(target, "/")
	}
	at, err := t.stat(ctx, dir)
	switch {
	case err != nil:
		return err
	case at.kind == kindMissing:
		return &Error{
			Code: api.CodeNotFound, Message: fmt.Sprintf("copy to %s:%s: there is no directory %s in the sandbox",
				t.id, target, dir),
			Reason: api.ReasonGuestDirectoryMissing, Details: map[string]string{"sandbox": t.id, "directory": dir},
		}
	case at.kind != kindDir:
		return &Error{Code: api.CodeInvalid, Message: fmt.Sprintf("copy to %s:%s: %s is not a directory", t.id, target, dir)}
	}
	return nil
}

// counting reports what is read through it.
type counting struct {
	io.Reader
	tell func(n int)
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if n > 0 && c.tell != nil {
		c.tell(n)
	}
	return n, err
}
