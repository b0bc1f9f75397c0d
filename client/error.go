package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/forkd/forkd/api"
)

// Error is a failure that the daemon reported, or that it could not be reached.
type Error struct {
	Code    api.Code // stable; branch on this
	Message string   // what happened, to which object
	Hint    string   // what to do about it; may be empty
	Status  int      // of the HTTP response; 0 if there was none
	// RetryAfter is when the daemon says to try again; 0 if it does not.
	RetryAfter time.Duration
	cause      error
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the cause of a failure to reach the daemon.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf is the code of an error of this package, or CodeInternal.
func CodeOf(err error) api.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return api.CodeInternal
}

// IsNotFound reports that the object asked for does not exist.
func IsNotFound(err error) bool { return CodeOf(err) == api.CodeNotFound }

// IsUnreachable reports that no daemon answered.
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
		e.Hint, e.Message = body.Hint, body.Error.Message
		if e.Message == "" {
			e.Message = body.Message
		}
	}
	if e.Message == "" {
		e.Message = fmt.Sprintf("%s %s answered %s", resp.Request.Method, resp.Request.URL.Path, resp.Status)
	}
	return e
}

// retryAfter reads the header's form in seconds; ours has no other.
func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || n < 0 || n > 86400 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// unreachable words a failure of the connection. The caller's own cancellation
// stays what it is.
func unreachable(url string, ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &Error{
		Code: api.CodeUnreachable, Message: fmt.Sprintf("no daemon answers at %s: %v", url, err),
		Hint: "start it with `forkd serve`, or point --url or FORKD_URL to one that runs", cause: err,
	}
}
