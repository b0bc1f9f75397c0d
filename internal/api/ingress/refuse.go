package ingress

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// HeaderError distinguishes an answer of the daemon from one of the guest's server, as in the API.
const HeaderError = "Forkd-Error"

// headerMovedTo names the node that has taken the sandbox, as in the API.
const headerMovedTo = "Forkd-Moved-To"

// refusal is the body of an error of the daemon itself. Its first fields are E2B's, because its
// clients parse the text.
type refusal struct {
	Sandbox string `json:"sandboxId"`
	Message string `json:"message"`
	Port    uint16 `json:"port,omitempty"`
	Code    int    `json:"code"`

	Error string `json:"error,omitempty"` // the event, in our words
	Hint  string `json:"hint,omitempty"`

	kind   sandbox.Code // one of the API's codes, for the header
	advice string       // for people, if the body has only E2B's fields
}

// refuse answers for a guest that could not.
func refuse(w http.ResponseWriter, r *http.Request, to Target, err error) {
	f := refusalOf(to, err)
	if shown, _ := r.Context().Value(shownKey{}).(string); shown != "" {
		var ended endedError
		if f.Sandbox, f.Hint = shown, ""; !errors.As(err, &ended) && !replaced(err) {
			f.Error = ""
		}
	}
	w.Header().Set(HeaderError, string(f.kind))
	if node := sandbox.MovedTo(err); node != "" {
		w.Header().Set(headerMovedTo, node)
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case f.Code == http.StatusBadRequest:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(f.Code)
		fmt.Fprintln(w, f.Message)
	case strings.Contains(r.Header.Get("Accept"), "text/html"):
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(f.Code)
		fmt.Fprintf(w, "<!doctype html><title>%[1]d</title><h1>%[2]s</h1><p>%[3]s</p><p>%[4]s</p>\n", f.Code,
			html.EscapeString(f.Message), html.EscapeString(f.Error), html.EscapeString(cmp.Or(f.Hint, f.advice)))
	default:
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(f.Code)
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(f)
	}
}

// refusalOf describes an error for E2B's clients and for people.
func refusalOf(to Target, err error) refusal {
	f := refusal{Sandbox: to.Sandbox, Code: http.StatusBadGateway, Error: guesttext.ClipLines(err.Error(), 500)}
	var bad badRoute
	var dial dialError
	var private errPrivate
	switch {
	case errors.As(err, &bad):
		f.Code, f.Message, f.kind = http.StatusBadRequest, bad.text, sandbox.CodeInvalid
	case errors.As(err, &private):
		f.Code, f.Message, f.kind = http.StatusForbidden, private.Error(), sandbox.CodeForbidden
		f.Error, f.advice = "", "its ports are private: the API returns the token as traffic_token to authorized callers"
	case errors.As(err, new(*iodeadline.SilentError)):
		f.Code, f.Message, f.kind = http.StatusRequestTimeout, "The request's body stopped before its end",
			sandbox.CodeRequestTimeout
	case replaced(err) && !errors.As(err, &dial):
		f.Message, f.Port, f.kind = "The sandbox was paused or rolled back during the request", to.Port, sandbox.CodeGuestGone
		f.Error += "; the server in it may or may not have handled the request"
		f.Hint = "send it again if the server may handle it twice"
	case errors.As(err, new(endedError)):
		f.Message, f.kind = "The sandbox was not found", sandbox.CodeGuestGone
		f.Hint = "it ended during the request; fork another"
	case errors.Is(err, sandbox.ErrNotFound):
		f.Message, f.kind = "The sandbox was not found", sandbox.CodeNotFound
		f.Hint = "it may have ended; list the sandboxes with the daemon's API"
	case errors.Is(err, sandbox.ErrPortClosed), isReason(err, sandbox.ReasonPortTimeout):
		f.Message, f.Port, f.kind = "The sandbox is running but port is not open", to.Port, sandbox.CodePortClosed
		f.Hint = fmt.Sprintf("start a server on port %d in the sandbox, on localhost or any address", to.Port)
	case isReason(err, sandbox.ReasonTransitionBusy), isReason(err, sandbox.ReasonTransitionSlow):
		f.Code, f.Message, f.kind = http.StatusServiceUnavailable, "The sandbox is being paused or resumed", sandbox.CodeBusy
	case errors.Is(err, sandbox.ErrBusy):
		f.Code, f.Message, f.kind = http.StatusServiceUnavailable, "The sandbox has too many connections", sandbox.CodeBusy
	case errors.Is(err, sandbox.ErrDraining):
		f.Code, f.Message, f.kind = http.StatusServiceUnavailable, "The sandbox is paused for maintenance",
			sandbox.CodeDraining
		f.Hint = "a client with a key can resume it through a gateway, at another node (POST /v1/sandboxes/ID/resume); " +
			"otherwise it waits until the operator ends the drain of the daemon"
	case errors.Is(err, sandbox.ErrNoMemory), errors.Is(err, sandbox.ErrNoResources):
		f.Code, f.Message, f.kind = http.StatusServiceUnavailable, "The sandbox is paused, and its host has no room for it",
			sandbox.CodeNoMemory
		if errors.Is(err, sandbox.ErrNoResources) {
			f.kind = sandbox.CodeNoResources
		}
		f.Hint = "repeat the request later, or resume it through a gateway, at another node (POST /v1/sandboxes/ID/resume)"
	case errors.Is(err, sandbox.ErrClosing):
		f.Code, f.Message, f.kind = http.StatusServiceUnavailable, "The daemon is shutting down", sandbox.CodeClosing
	case isReason(err, sandbox.ReasonAgentOld):
		f.Message, f.kind = "The sandbox's agent is too old", sandbox.CodeConflict
		f.Hint = "rebuild its snapshot from an image built by this version"
	case errors.Is(err, sandbox.ErrNoSpace):
		f.Code, f.Message, f.kind = http.StatusInsufficientStorage, "The sandbox is stalled", sandbox.CodeNoSpace
		f.Hint = "free space on the host for its disk; it then continues automatically"
	case errors.As(err, &dial): // failed, or ended
		f.Message, f.kind = "The sandbox was not found", sandbox.CodeGuestGone
		f.Hint = "it has ended; see its console and its receipt"
	default:
		f.Message = "The server in the sandbox closed the connection, or does not speak HTTP"
		f.Port, f.kind = to.Port, sandbox.CodeGuestGone
	}
	return f
}

// replaced reports whether a pause or a rollback cut a request off. Its sandbox has not ended.
func replaced(err error) bool {
	return isReason(err, sandbox.ReasonSandboxPaused) || isReason(err, sandbox.ReasonSandboxRolledBack)
}

func isReason(err error, reason sandbox.Reason) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Reason() == reason
}
