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

// Error is a failure reported by the daemon, or a failure to reach it.
type Error struct {
	Code    api.Code   // stable; branch on this
	Message string     // the event and its object
	Reason  api.Reason // distinguishes errors with the same code; may be empty
	// Details holds names for the reason, such as a snapshot's tag.
	Details map[string]string
	Status  int // of the HTTP response; 0 if there was no response
	// RequestID identifies the request in the daemon's log and audit log. It is empty if the
	// request had no ID.
	RequestID string
	// RetryAfter is the wait the daemon asks for; 0 if it asks for no wait.
	RetryAfter time.Duration
	cause      error
	fromDaemon bool // not from the guest's agent or a proxy
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause of a failure to reach the daemon.
func (e *Error) Unwrap() error { return e.cause }

// FromDaemon reports whether the daemon itself sent the error. Otherwise it comes from the guest's
// agent, a proxy or this package.
func (e *Error) FromDaemon() bool { return e.fromDaemon }

// CodeOf returns the code of an error of this package, or CodeInternal for other errors.
func CodeOf(err error) api.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return api.CodeInternal
}

// ReasonOf returns the reason of an error of this package. It may be empty.
func ReasonOf(err error) api.Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// IsNotFound reports whether the requested object does not exist.
func IsNotFound(err error) bool { return CodeOf(err) == api.CodeNotFound }

// IsBroken reports whether the daemon's answer was cut off. The daemon may have done the request or
// not.
func IsBroken(err error) bool { return CodeOf(err) == api.CodeBroken }

// IsUnreachable reports whether no daemon answered. The request was not done.
func IsUnreachable(err error) bool { return CodeOf(err) == api.CodeUnreachable }

// responseError reads the error of a response with a 4xx or 5xx status. Other servers, such as a
// proxy or the guest's agent, use other forms.
func responseError(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body struct {
		api.Error
		Code    json.RawMessage `json:"code"` // the agent's code is a number
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
		e.Code = api.CodeInvalid // the guest lacks the user or denies it; the daemon's token is not the problem
	}
	if e.Message == "" {
		e.Message = fmt.Sprintf("%s %s answered %s", resp.Request.Method, resp.Request.URL.Path, resp.Status)
	}
	return e
}

// agentAnswered recognizes an error of the agent by its numeric code.
func agentAnswered(code json.RawMessage) bool {
	var n int
	return len(code) > 0 && json.Unmarshal(code, &n) == nil
}

// retryAfter parses the header's form in seconds. The daemon sends no other form.
func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || n < 0 || n > 86400 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// disconnected describes a failed connection: no answer, or an answer cut off midway. If the caller
// cancelled, it returns the caller's cause unchanged.
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

// dialError marks a failure to connect. The request was not sent.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// brokenOff returns the error of a request when its connection ended before the answer. The daemon
// may have done the request, so the client must not repeat it.
func brokenOff(url, method string, cause error) error {
	if ended := new(Error); errors.As(cause, &ended) {
		return ended // already described
	}
	e := &Error{
		Code: api.CodeBroken, Message: fmt.Sprintf(
			"the connection to the daemon at %s broke before the response: %v", url, plainCause(cause)),
	}
	// The cause is not wrapped. Code that reads streams would take a wrapped EOF for the end of the
	// stream.
	if method != http.MethodGet && method != http.MethodHead {
		e.Message = fmt.Sprintf(
			"the connection to the daemon at %s broke; the request may or may not have taken effect: %v", url, plainCause(cause))
		e.Reason = api.ReasonMaybeDone
	}
	return e
}

// plainCause describes Go's errors for the end of a connection.
func plainCause(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it was closed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "it was reset"
	}
	return err.Error()
}

// answerBody is the body of an answer. The connection may break while it is read.
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
