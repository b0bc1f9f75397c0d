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

// CopyOptions configure a copy of files.
type CopyOptions struct {
	// User is the guest user who reads and writes the files, and owns new ones. If empty, it is the
	// image's user.
	User string
	// FollowLinks copies the targets of symbolic links in a directory, instead of the links.
	FollowLinks bool
	// Progress is called with the size of each piece transferred, in bytes. May be nil.
	Progress func(n int)
	// Total is called once with the size of the copy in bytes, if it is known in time. May be nil.
	Total func(bytes int64)
	// Arrived is called for each file, directory and link that has arrived. For a copy into a
	// sandbox it is called for each one sent. May be nil.
	Arrived func()
	// Skipped is called with the name of each part left out, and the reason. May be nil.
	Skipped func(name, why string)
	// Lossy is called if the agent in the sandbox is from an older forkd. Such a copy loses times,
	// hard links and holes. May be nil.
	Lossy func()
}

func (o CopyOptions) skip(name, why string) {
	if o.Skipped != nil {
		o.Skipped(name, why)
	}
}

// CopyError reports a partial copy of a tree.
type CopyError struct {
	Copied int     // files, links and directories
	Failed []error // one error per failed part, at most maxTold
	More   int     // number of failures that are not in Failed
}

// StoppedError reports an early end of a copy.
type StoppedError struct {
	// Copied counts complete files, links and directories. No other file exists in part, except
	// files written in place (docs/use/cli.md).
	Copied int
	// Unknown is set if the sandbox's agent did not report the count. Copied is then 0.
	Unknown bool
	// Cause is the reason for the end, such as context.Canceled.
	Cause error
}

func (e *StoppedError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("stopped, and it is not known how much of the copy is there: %v", e.Cause)
	}
	return fmt.Sprintf("stopped after %d files, links and directories, the rest was not copied: %v", e.Copied, e.Cause)
}

// Unwrap returns the cause.
func (e *StoppedError) Unwrap() error { return e.Cause }

// maxTold limits the number of failures an error keeps.
const maxTold = 100

func (e *CopyError) Error() string {
	return fmt.Sprintf("%d could not be copied, %d were; first: %v", len(e.Failed)+e.More, e.Copied, e.Failed[0])
}

// Unwrap returns the failures.
func (e *CopyError) Unwrap() []error { return e.Failed }

// tally counts copied and failed parts of a tree.
type tally struct {
	copied int
	failed []error
	more   int
}

// took records the result of one part. If it returns an error, the copy must end.
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

// end returns the result of the whole copy.
func (t *tally) end(stopped error) error {
	if stopped != nil && (t.copied > 0 || errors.Is(stopped, context.Canceled)) {
		return &StoppedError{Copied: t.copied, Cause: stopped}
	}
	if stopped == nil && len(t.failed) > 0 {
		return &CopyError{Copied: t.copied, Failed: t.failed, More: t.more}
	}
	return stopped
}

// endsCopy reports whether the rest of the copy would fail too.
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

// CopyStream writes the content of a reader to a file in a sandbox. The file's directory must
// exist.
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

// needParent checks the existence of a new file's directory. Upload would create it, which would
// hide a mistyped name.
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
			Code: api.CodeNotFound, Message: fmt.Sprintf("copy to %s:%s: the sandbox has no directory %s",
				t.id, target, dir),
			Reason: api.ReasonGuestDirectoryMissing, Details: map[string]string{"sandbox": t.id, "directory": dir},
		}
	case at.kind != kindDir:
		return &Error{Code: api.CodeInvalid, Message: fmt.Sprintf("copy to %s:%s: %s is not a directory", t.id, target, dir)}
	}
	return nil
}

// counting calls tell with the size of each read.
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
