package forkwire

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Limits of messages, documented in docs/inside/formats/fork-call.md.
const (
	MaxChildren    = 1000           // of one fork
	MaxResult      = 1 << 20        // bytes a child returns at exit
	maxIDs         = MaxChildren    // named in one wait
	maxWait        = 24 * time.Hour // of one wait
	maxRequestLine = 64 << 10       // bytes, including the newline
	maxAnswerLine  = 1 << 20        // bytes; fits a thousand children, each with a short reason
	maxText        = 300            // bytes of a reason or message
	maxChildText   = 120            // bytes of the reason for one missing child
	tokenDigits    = 32             // of a call's token
)

// Op is the operation of a request.
type Op string

const (
	OpFork Op = "fork" // branch this VM into N children
	OpWait Op = "wait" // wait for the end of one child
	OpExit Op = "exit" // end this VM, which must be a child
)

// Request is one call.
type Request struct {
	Op Op  `json:"op"`          // defines the fields in use
	N  int `json:"n,omitempty"` // of a fork
	// Token identifies a fork to the host, so repeated requests make the fork only once. The agent
	// sets it and ignores the token of a local caller.
	Token string `json:"token,omitempty"`
	// Again reports whether a request with this token was sent before.
	Again bool `json:"again,omitempty"`
	// IDs are the children to wait for. If empty, the wait is for any child.
	IDs       []string `json:"ids,omitempty"`
	TimeoutMS int64    `json:"timeout_ms,omitempty"` // of a wait; 0 means no timeout
	Code      int      `json:"code,omitempty"`       // of an exit
	Bytes     int      `json:"bytes,omitempty"`      // of the result after an exit request
}

// Answer is the result of a call. In the children of a fork, the agent makes it.
type Answer struct {
	Error *Error `json:"error,omitempty"` // if set, the other fields are unset
	// Index is the result of a fork: 0 in the original, 1 to N in the children.
	Index    int     `json:"index"`
	ID       string  `json:"id,omitempty"`       // of this child
	Parent   string  `json:"parent,omitempty"`   // tag of the snapshot it was forked from
	Children []Child `json:"children,omitempty"` // in the original, by index
	Ended    *Ended  `json:"ended,omitempty"`    // of a wait
	Bytes    int     `json:"bytes,omitempty"`    // of the result after the answer
}

// Child is one child of a fork: a sandbox, or the reason for its absence.
type Child struct {
	Index int    `json:"index"`           // 1 to N
	ID    string `json:"id,omitempty"`    // of the sandbox; empty if Error is set
	Error string `json:"error,omitempty"` // reason for its absence, at most maxChildText bytes
}

// Status is how a child ended.
type Status string

const (
	Exited Status = "exited" // it called exit
	Killed Status = "killed" // through the API
	Died   Status = "died"   // its VM ended without a request; Reason has the cause
)

// Ended is a child's end.
type Ended struct {
	ID     string `json:"id"`               // sandbox id of the child
	Index  int    `json:"index"`            // from its fork
	Status Status `json:"status"`           // how it ended
	Code   int    `json:"code"`             // from the call of exit, otherwise -1
	Reason string `json:"reason,omitempty"` // if Status is Died
}

// Code is the kind of an error.
type Code string

const (
	Invalid     Code = "invalid"     // the request is wrong
	Denied      Code = "denied"      // this sandbox may not fork
	Limit       Code = "limit"       // the tree has reached its limit of size or depth
	Busy        Code = "busy"        // too much is under way; try again
	Failed      Code = "failed"      // the fork failed without any effect
	Interrupted Code = "interrupted" // another fork came first; this VM got no fork
	Lost        Code = "lost"        // the host does not know the outcome
	NoChildren  Code = "no_children" // no children to wait for
	TimedOut    Code = "timeout"     // no child ended in time
	NotAChild   Code = "not_a_child" // no fork in a guest made this VM
	Unavailable Code = "unavailable" // the host does not answer
)

// Error is the error of a failed call.
type Error struct {
	Code    Code   `json:"code"`    // the kind, for programs
	Message string `json:"message"` // for people, at most maxText bytes
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an Error with a formatted text.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: Clip(fmt.Sprintf(format, args...))}
}

// ClipChild shortens the reason for one of many children.
func ClipChild(s string) string { return ellipsis.Clip(s, maxChildText) }

// Clip shortens a text to the limit of a message.
func Clip(s string) string { return ellipsis.Clip(s, maxText) }

var (
	tokenPattern = regexp.MustCompile(fmt.Sprintf("^[0-9a-f]{%d}$", tokenDigits))
	idPattern    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// Check returns an error if a request of a local caller is invalid.
func (r *Request) Check() error {
	switch r.Op {
	case OpFork:
		if r.N < 1 || r.N > MaxChildren {
			return fmt.Errorf("n is %d, want 1 to %d", r.N, MaxChildren)
		}
	case OpWait:
		return r.checkWait()
	case OpExit:
		if r.Code < 0 || r.Code > 255 {
			return fmt.Errorf("exit code is %d, want 0 to 255", r.Code)
		}
	default:
		return fmt.Errorf("op is %q, want fork, wait or exit", Clip(string(r.Op)))
	}
	if r.Bytes < 0 || r.Bytes > MaxResult {
		return fmt.Errorf("the result is %d bytes, want at most %d", r.Bytes, MaxResult)
	}
	if r.Bytes > 0 && r.Op != OpExit {
		return errors.New("only an exit has a result")
	}
	return nil
}

// CheckFromAgent returns an error if a request from an agent is invalid. It runs on the host.
func (r *Request) CheckFromAgent() error {
	if err := r.Check(); err != nil {
		return err
	}
	if r.Op == OpFork && !tokenPattern.MatchString(r.Token) {
		return fmt.Errorf("token is %q, want %d hex digits", Clip(r.Token), tokenDigits)
	}
	return nil
}

func (r *Request) checkWait() error {
	switch {
	case r.Bytes != 0:
		return errors.New("only an exit has a result")
	case len(r.IDs) > maxIDs:
		return fmt.Errorf("%d ids, want at most %d", len(r.IDs), maxIDs)
	case r.TimeoutMS < 0 || r.TimeoutMS > maxWait.Milliseconds():
		return fmt.Errorf("timeout is %d ms, want 0 to %d", r.TimeoutMS, maxWait.Milliseconds())
	}
	for _, id := range r.IDs {
		if !idPattern.MatchString(id) {
			return fmt.Errorf("id is %q, want 1 to 64 letters, digits, - or _", Clip(id))
		}
	}
	return nil
}
