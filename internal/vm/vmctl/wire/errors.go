package wire

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// maxErrorText limits the text of an error to fit into an answer (JSON may write a byte as six).
const maxErrorText = 600

// Error is the encoding of an error: a text for people, and codes from which errors.Is works.
type Error struct {
	Text  string   `json:"text"`            // at most maxErrorText bytes
	Codes []string `json:"codes,omitempty"` // such as "state" or "no-room"; unknown ones are ignored
	// Errno is the host's error number behind the error, or 0.
	Errno int `json:"errno,omitempty"`
}

// codes maps the transferable errors to their codes. It excludes vmm.ErrGone, which each end
// detects itself.
var codes = []struct {
	code string
	err  error
}{
	{"state", vmm.ErrState},
	{"pause", vmm.ErrPause},
	{"no-room", vmm.ErrNoRoom},
	{"lost", vmm.ErrLost},
	{"cut", vmm.ErrCut},
	{"unsupported", errors.ErrUnsupported},
}

// maxErrno is the largest error number of a Linux system call.
const maxErrno = 4095

// EncodeError returns the encoding of an error, or nil for nil.
func EncodeError(err error) *Error {
	if err == nil {
		return nil
	}
	e := &Error{Text: ClipText(err.Error())}
	var errno unix.Errno
	if errors.As(err, &errno) {
		e.Errno = int(errno)
	}
	for _, c := range codes {
		if errors.Is(err, c.err) && !errors.Is(errno, c.err) {
			e.Codes = append(e.Codes, c.code)
		}
	}
	return e
}

// ClipText shortens a text to fit into an answer.
func ClipText(s string) string { return ellipsis.Clip(s, maxErrorText) }

// Err returns the decoded error: its text, made printable, and its causes for errors.Is and
// errors.As. Unknown codes are ignored.
func (e *Error) Err() error {
	r := &remoteError{text: ClipText(Printable(e.Text))}
	for _, c := range codes {
		if slices.Contains(e.Codes, c.code) {
			r.causes = append(r.causes, c.err)
		}
	}
	if e.Errno > 0 && e.Errno <= maxErrno {
		r.causes = append(r.causes, unix.Errno(e.Errno))
	}
	return r
}

// remoteError is an error received from the other end.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.causes }
