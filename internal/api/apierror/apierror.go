// Package apierror has the error of an answer: its code, reason, HTTP status and headers. It converts errors of the
// domain and of the framework to that form, in one place. It writes no answer: package respond does.
package apierror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// sentinel maps one domain error to an API code. api.Codes maps codes to HTTP status and exit code.
type sentinel struct {
	err  error
	code api.Code
}

func sentinels() []sentinel {
	return []sentinel{
		{sandbox.ErrInvalid, api.CodeInvalid},
		{sandbox.ErrNotFound, api.CodeNotFound},
		{storeerr.ErrNotRestorable, api.CodeNotRestorable},
		{sandbox.ErrBootFailed, api.CodeBootFailed},
		{sandbox.ErrGuestGone, api.CodeGuestGone},
		{sandbox.ErrPortClosed, api.CodePortClosed},
		{sandbox.ErrTimeout, api.CodeTimeout},
		{sandbox.ErrNoSpace, api.CodeNoSpace},
		{sandbox.ErrNoMemory, api.CodeNoMemory},
		{sandbox.ErrNoResources, api.CodeNoResources},
		{sandbox.ErrForbidden, api.CodeForbidden},
		{sandbox.ErrQuota, api.CodeQuota},
		{sandbox.ErrBusy, api.CodeBusy},
		{sandbox.ErrUnsupported, api.CodeUnsupported},
		{sandbox.ErrDraining, api.CodeDraining},
		{sandbox.ErrClosing, api.CodeClosing},
		// Last: other kinds may be conflicts as well.
		{sandbox.ErrConflict, api.CodeConflict},
		{context.DeadlineExceeded, api.CodeTimeout},
		{context.Canceled, api.CodeClosing},
	}
}

// CodeOf returns the code of a domain error.
func CodeOf(err error) api.Code {
	for _, row := range sentinels() {
		if errors.Is(err, row.err) {
			return row.code
		}
	}
	return api.CodeInternal
}

// Error is an error for the client. Its JSON is the same as api.Error's.
type Error struct {
	Message string            `json:"error" doc:"What happened, to which object, for people"`
	Code    api.Code          `json:"code" doc:"Stable identifier of the kind of error, for programs"`
	Reason  api.Reason        `json:"reason,omitempty" doc:"Tells errors of one code apart where what to do about them differs; stable"`
	Details map[string]string `json:"details,omitempty" doc:"Names that belong to the reason, such as that of a snapshot"`
	// RequestID is set when the error is written.
	RequestID string `json:"request_id,omitempty" doc:"ID of the request, as in the header Forkd-Request-Id, the daemon's log and the audit log"`
	status    int
	retry     time.Duration // wait before a retry, if known
	movedTo   string        // the node that has taken the sandbox
}

var (
	_ huma.StatusError  = (*Error)(nil)
	_ huma.HeadersError = (*Error)(nil)
)

func (f *Error) Error() string  { return f.Message }
func (f *Error) GetStatus() int { return f.status }

// RetryAfter returns the wait before a retry, or 0 if it is not known.
func (f *Error) RetryAfter() time.Duration { return f.retry }

// WithRetry sets the wait before a retry.
func (f *Error) WithRetry(wait time.Duration) *Error {
	f.retry = wait
	return f
}

// WithStatus returns a copy with another HTTP status than that of the code.
func (f *Error) WithStatus(status int) *Error {
	own := *f
	own.status = status
	return &own
}

// Named sets the request ID from the header of the answer.
func (f *Error) Named(h http.Header) *Error {
	f.RequestID = h.Get(api.HeaderRequestID)
	return f
}

// retryAfter is the retry time for a busy daemon, in seconds. A branch takes about as long.
const retryAfter = "1"

// retryPressure is the retry time for a host under pressure, in seconds. The kernel averages
// pressure over 10 s.
const retryPressure = "10"

// GetHeaders returns the headers of the error's response.
func (f *Error) GetHeaders() http.Header {
	h := http.Header{api.HeaderError: {string(f.Code)}}
	if f.movedTo != "" {
		h.Set(api.HeaderMovedTo, f.movedTo)
	}
	switch {
	case f.Reason == api.ReasonAnswerNoRoom: // clients that retry each 503 would run the code again
		h.Set("Should-Retry", "false")
	case f.retry > 0:
		h.Set("Retry-After", strconv.FormatInt(int64((f.retry+time.Second-1)/time.Second), 10))
	case f.Reason == api.ReasonHostPressure:
		h.Set("Retry-After", retryPressure)
	case f.Code == api.CodeBusy, f.Code == api.CodeQuota:
		h.Set("Retry-After", retryAfter)
	}
	return h
}

func (f *Error) Wire() *api.Error {
	return &api.Error{Message: f.Message, Code: f.Code, Reason: f.Reason, Details: f.Details, RequestID: f.RequestID}
}

// Limits of an error, in bytes. Guest texts are clipped when they are read. These limits are the
// last check.
const (
	maxMessage = 8 << 10
	maxDetail  = 1000
)

// New returns a failure with one of our own codes.
func New(code api.Code, reason api.Reason, format string, args ...any) *Error {
	text := guesttext.ClipLines(fmt.Sprintf(format, args...), maxMessage)
	return &Error{Message: text, Code: code, Reason: reason, status: code.Status()}
}

// KeyEnded is the last error of a request after its key has ended.
func KeyEnded() *Error { return New(api.CodeUnauthorized, "", "%v", principal.ErrKeyEnded) }

// From converts any error of a handler.
func From(err error) *Error {
	var f *Error
	if errors.As(err, &f) {
		return f
	}
	f = New(CodeOf(err), "", "%s", err.Error())
	var e *sandbox.Error
	if errors.As(err, &e) {
		f.Reason, f.Details = api.Reason(e.Reason()), maps.Clone(e.Details())
		for name, v := range f.Details {
			f.Details[name] = guesttext.Clip(v, maxDetail)
		}
	}
	var later interface{ RetryAfter() time.Duration }
	if errors.As(err, &later) {
		f.retry = later.RetryAfter()
	}
	f.movedTo = sandbox.MovedTo(err)
	return f
}

// Validation converts huma's errors. The status is 400, like the original's. The message has
// the first complaint first, with its location.
func Validation(status int, msg string, errs ...error) huma.StatusError {
	switch {
	case status == http.StatusUnprocessableEntity:
		status = http.StatusBadRequest
	case strings.HasPrefix(msg, "cannot read request body"):
		// A broken transfer encoding is the sender's fault.
		status = http.StatusBadRequest
	}
	var parts []string
	for _, err := range errs {
		if err != nil {
			parts = append(parts, complaint(err))
		}
	}
	if len(parts) > 0 {
		msg = strings.Join(parts, "; ")
	}
	code := api.CodeOf(status)
	return &Error{Message: ellipsis.Clip(msg, 2000), Code: code, status: status}
}

// UnknownField begins the text of an error about a field.
const UnknownField = "unknown field "

// complaint describes one of huma's error details.
func complaint(err error) string {
	d, ok := err.(huma.ErrorDetailer)
	if !ok {
		return err.Error()
	}
	detail := d.ErrorDetail()
	where := strings.TrimPrefix(strings.TrimPrefix(detail.Location, "body."), "path.")
	switch {
	case where == "", strings.HasPrefix(detail.Message, UnknownField):
		return detail.Message
	case detail.Value == nil, mayBeSecret(where):
		return where + ": " + plainMessage(detail.Message)
	}
	if s, ok := detail.Value.(string); ok {
		return fmt.Sprintf("%s %q: %s", where, ellipsis.Clip(s, 80), plainMessage(detail.Message))
	}
	switch v := detail.Value.(type) {
	case float64: // every number of a body, in its usual notation
		return fmt.Sprintf("%s is %s: %s", where, strconv.FormatFloat(v, 'f', -1, 64), plainMessage(detail.Message))
	case int, int64, bool:
		return fmt.Sprintf("%s is %v: %s", where, v, plainMessage(detail.Message))
	}
	return fmt.Sprintf("%s: %s", where, detail.Message)
}

// mayBeSecret reports whether a part of a request may contain a secret. Errors are in the audit log, so they do not
// quote it.
func mayBeSecret(where string) bool {
	return where == "body" || where == "value" || strings.HasPrefix(where, "env.") ||
		strings.HasPrefix(where, "secrets") || strings.Contains(where, "headers")
}

// plainMessage hides the name of the library that could not parse a value.
func plainMessage(m string) string {
	switch {
	case strings.Contains(m, "invalid integer"), strings.Contains(m, "strconv.ParseInt"),
		strings.Contains(m, "strconv.Atoi"):
		return "want a whole number"
	case strings.Contains(m, "invalid boolean"), strings.Contains(m, "strconv.ParseBool"):
		return "want true or false"
	case strings.Contains(m, "strconv.ParseFloat"), strings.Contains(m, "invalid float"):
		return "want a number"
	}
	return m
}
