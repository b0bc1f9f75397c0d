package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/forkd/forkd/api"
)

// Error is a failure that the daemon reported, or that it could not be reached.
type Error struct {
	Code    api.Code   // stable; branch on this
	Message string     // what happened, to which object
	Reason  api.Reason // tells errors of one code apart; may be empty
	// Details are names that belong to the reason, such as that of a snapshot.
	Details map[string]string
	Status  int // of the HTTP response; 0 if there was none
	// RequestID finds the request in the daemon's log and in its audit log; empty: there was none.
	RequestID string
	// RetryAfter is when the daemon says to try again; 0 if it does not.
	RetryAfter time.Duration
	cause      error
	fromDaemon bool // and not the agent's in a guest, or a proxy's
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the cause of a failure to reach the daemon.
func (e *Error) Unwrap() error { return e.cause }

// FromDaemon tells what the daemon itself reports from what a guest's agent, a proxy or
// this package does.
func (e *Error) FromDaemon() bool { return e.fromDaemon }

// CodeOf is the code of an error of this package, or CodeInternal.
func CodeOf(err error) api.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return api.CodeInternal
}

// ReasonOf is the reason of an error of this package; it may be empty.
func ReasonOf(err error) api.Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// IsNotFound reports that the object asked for does not exist.
func IsNotFound(err error) bool { return CodeOf(err) == api.CodeNotFound }

// IsBroken reports that the daemon's answer broke off: what was asked for may or may
// not have been done.
func IsBroken(err error) bool { return CodeOf(err) == api.CodeBroken }

// IsUnreachable reports that no daemon answered: nothing was done.
func IsUnreachable(err error) bool { return CodeOf(err) == api.CodeUnreachable }

// responseError reads the error of a response with a 4xx or 5xx status. Other
// servers, such as a proxy or the guest's agent, have other shapes.
func responseError(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body struct {
		api.Error
		Code    json.RawMessage `json:"code"` // the agent's is a number
		Message string          `json:"message"`
	}
	e := &Error{Status: resp.StatusCode, Code: api.CodeOf(resp.StatusCode), RetryAfter: retryAfter(resp)}
	if json.Unmarshal(raw, &body) == nil {
		var code string
		if json.Unmarshal(body.Code, &code) == nil && code != "" {
			e.Code = api.Code(code)
		}
		e.Message, e.Reason, e.Details = body.Error.Message, body.Reason, body.Details
		if e.Message == "" {
			e.Message = body.Message
		}
	}
	e.fromDaemon = resp.Header.Get(api.HeaderError) != ""
	e.RequestID = resp.Header.Get(api.HeaderRequestID)
	if !e.fromDaemon && agentAnswered(body.Code) &&
		(e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) {
		e.Code = api.CodeInvalid // a user that the guest does not have, or who may not; no token is wrong
	}
	if e.Message == "" {
		e.Message = fmt.Sprintf("%s %s answered %s", resp.Request.Method, resp.Request.URL.Path, resp.Status)
	}
	return e
}

// agentAnswered tells the agent's errors, whose code is a number.
func agentAnswered(code json.RawMessage) bool {
	var n int
	return len(code) > 0 && json.Unmarshal(code, &n) == nil
}

// retryAfter reads the header's form in seconds; ours has no other.
func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || n < 0 || n > 86400 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// disconnected words a failure of the connection: nobody answered, or somebody did
// and broke off. The caller's own cancellation stays what it is.
func disconnected(url string, r *http.Request, err error) error {
	if r.Context().Err() != nil {
		return context.Cause(r.Context())
	}
	if e := refusedTLS(url, err); e != nil {
		return e
	}
	var dial *dialError
	if !errors.As(err, &dial) {
		return brokenOff(url, r.Method, err)
	}
	said := fmt.Sprintf("no daemon answers at %s: %v", url, err)
	if errors.Is(err, fs.ErrPermission) {
		said = fmt.Sprintf("the socket of the daemon at %s cannot be opened: permission denied", url)
	}
	return &Error{Code: api.CodeUnreachable, Message: said, cause: err}
}

// dialError marks that there was no connection: the request was not sent.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// brokenOff is the error of a request whose connection ended before its answer did.
// What it asked for may have been done, so it is not for the client to try again.
func brokenOff(url, method string, cause error) error {
	if ended := new(Error); errors.As(cause, &ended) {
		return ended // told already
	}
	e := &Error{
		Code: api.CodeBroken, Message: fmt.Sprintf("the connection to the daemon at %s broke off before its answer was "+
			"there: %v", url, plainCause(cause)),
	}
	// The cause is not wrapped: what reads streams would take an EOF for their end.
	if method != http.MethodGet && method != http.MethodHead {
		e.Message = fmt.Sprintf("the connection to the daemon at %s broke off: what was asked for may or may not have "+
			"been done: %v", url, plainCause(cause))
		e.Reason = api.ReasonMaybeDone
	}
	return e
}

// plainCause says what the ends of connections are called in Go.
func plainCause(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it was closed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "it was reset"
	}
	return err.Error()
}

// answerBody is an answer on its way, which may break off.
type answerBody struct {
	io.ReadCloser
	url     string
	request *http.Request
}

func (b answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, http.ErrBodyReadAfterClose) {
		return n, err
	}
	if b.request.Context().Err() != nil {
		return n, context.Cause(b.request.Context())
	}
	return n, brokenOff(b.url, b.request.Method, err)
}
