package e2bapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// apiError is the body of every error of the control API.
type apiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Word    string `json:"error_code,omitempty"`

	// leftSomething means that the request must not be repeated, because it left changes.
	leftSomething bool
	// retry is the wait before a retry, if known.
	retry time.Duration
	// movedTo is the node that has taken the sandbox, or empty.
	movedTo string
	// shortage is the native API's code of an error that another daemon may not return, or empty.
	shortage string
}

func (e *apiError) Error() string { return e.Message }

// headerMovedTo names the node that has taken the sandbox, as in the native API.
const headerMovedTo = "Forkd-Moved-To"

// headerError has the native API's code of an error.
const headerError = "Forkd-Error"

// maxMessage limits an error, in bytes.
const maxMessage = 2000

func failf(status int, format string, args ...any) *apiError {
	return &apiError{Code: status, Message: guesttext.ClipLines(fmt.Sprintf(format, args...), maxMessage)}
}

func invalidf(format string, args ...any) *apiError {
	return failf(http.StatusBadRequest, format, args...)
}

// notYet is the error for a feature of E2B this server lacks.
func notYet(what string) *apiError {
	return failf(http.StatusNotImplemented, "%s is not supported by this server", what)
}

func isNotFound(err error) bool { return errors.Is(err, sandbox.ErrNotFound) }

// apiErrorOf converts any error to E2B's form. 503 promises that no change was made. In
// some places clients give 409 a special meaning. Callers must replace it there.
func apiErrorOf(err error) *apiError {
	var e *apiError
	if errors.As(err, &e) {
		return e
	}
	status := http.StatusInternalServerError
	for _, row := range []struct {
		is     error
		status int
	}{
		{sandbox.ErrInvalid, 400}, {sandbox.ErrNotFound, 404}, {sandbox.ErrGuestGone, 404},
		{sandbox.ErrBusy, 503}, {sandbox.ErrNoMemory, 503}, {sandbox.ErrClosing, 503}, {sandbox.ErrDraining, 503}, {sandbox.ErrNoSpace, 503},
		{sandbox.ErrUnsupported, 501}, {sandbox.ErrTimeout, 504}, {sandbox.ErrForbidden, 403},
		{sandbox.ErrQuota, 429}, {sandbox.ErrNoResources, 503}, {sandbox.ErrConflict, 409},
	} {
		if errors.Is(err, row.is) {
			status = row.status
			break
		}
	}
	return &apiError{Code: status, Message: guesttext.ClipLines(err.Error(), maxMessage), Word: transitionWord(err),
		retry: retryOf(err), movedTo: sandbox.MovedTo(err), shortage: shortageOf(err)}
}

// shortageOf returns the code of a lack of this daemon, for gateways. It is empty for other errors.
func shortageOf(err error) string {
	for is, code := range map[error]sandbox.Code{
		sandbox.ErrNoMemory: sandbox.CodeNoMemory, sandbox.ErrNoSpace: sandbox.CodeNoSpace,
		sandbox.ErrNoResources: sandbox.CodeNoResources, sandbox.ErrDraining: sandbox.CodeDraining,
	} {
		if errors.Is(err, is) {
			return string(code)
		}
	}
	return ""
}

// retryOf returns the wait before a retry, if the error has one.
func retryOf(err error) time.Duration {
	var later interface{ RetryAfter() time.Duration }
	if errors.As(err, &later) {
		return later.RetryAfter()
	}
	return 0
}

// writeError answers with an error. Clients retry errors marked as safe to repeat.
func writeError(w http.ResponseWriter, err error) {
	e := apiErrorOf(err)
	setErrorHeaders(w, e)
	writeJSON(w, e.Code, e)
}

// setErrorHeaders sets the headers of an answer with an error.
func setErrorHeaders(w http.ResponseWriter, e *apiError) {
	if e.movedTo != "" {
		w.Header().Set(headerMovedTo, e.movedTo)
	}
	if e.shortage != "" {
		w.Header().Set(headerError, e.shortage)
	}
	switch {
	case e.leftSomething, e.Code == http.StatusNotImplemented, e.Code == http.StatusGatewayTimeout:
		w.Header().Set("Should-Retry", "false")
	case e.Code == http.StatusServiceUnavailable, e.Code == http.StatusTooManyRequests:
		w.Header().Set("Should-Retry", "true")
		if w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((max(e.retry, 1)+time.Second-1)/time.Second), 10))
		}
	}
}

// statusError is an error of Authenticate that does not concern the client's identity.
type statusError interface{ GetStatus() int }

func authError(err error) *apiError {
	var s statusError
	if errors.As(err, &s) && s.GetStatus() != http.StatusUnauthorized {
		e := failf(s.GetStatus(), "%s", err.Error())
		e.retry = retryOf(err)
		return e
	}
	return failf(http.StatusUnauthorized, "unauthorized: %s", err.Error())
}
