package e2bapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/forkd/forkd/internal/api/e2bapi/target"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// sandboxRefusal is the body of an error in place of a sandbox's answer. Clients parse its texts.
type sandboxRefusal struct {
	Sandbox string `json:"sandboxId"`
	Message string `json:"message"`
	Port    uint16 `json:"port,omitempty"`
	Code    int    `json:"code"`
	Word    string `json:"error_code,omitempty"`
}

const (
	textGone   = "The sandbox was not found"
	textClosed = "The sandbox is running but port is not open"
)

// state is the state of a sandbox in E2B's terms.
type state string

const (
	stateRunning state = "running"
	statePaused  state = "paused"
	stateGone    state = "gone"
)

// stateOf converts the engine's status. A sandbox stalled because the host's disk is full has its
// process, and counts as running, because it continues without a request. A sandbox being paused or
// resumed counts as paused.
func stateOf(i sandbox.Info) state {
	switch {
	case i.Status == sandbox.StatusFailed:
		return stateGone
	case i.Status == sandbox.StatusPaused && i.PID == 0, i.InTransition():
		return statePaused
	}
	return stateRunning
}

// roused returns nil if a sandbox can take a request, or can refuse it itself. A request with the
// sandbox's token resumes the sandbox and counts as use. A request without it does neither.
func roused(h *Handler, r *http.Request, to target.Target) error {
	if !admits(h, r, to) {
		if to.Port == target.EnvdPort && r.URL.Path == "/health" {
			return running(h, to.ID)
		}
		_, err := h.opt.Engine.Get(to.ID)
		return err // an existing sandbox refuses the request, running or not
	}
	err := h.awake(r.Context(), to.ID)
	h.opt.Lives.Touch(to.ID)
	return err
}

// admits reports whether a request shows the token its sandbox requires.
func admits(h *Handler, r *http.Request, to target.Target) bool {
	switch {
	case r.Method == http.MethodOptions && to.Port == target.EnvdPort:
		return false // a browser sends it without a token, and the answer needs no guest
	case to.Port == target.EnvdPort:
		return h.envd.admit(r, to.ID) == nil
	}
	return h.opt.Ports.Admits(r, to.ID, to.Port)
}

// running returns an error unless a sandbox runs. It does not resume one.
func running(h *Handler, id string) error {
	info, err := h.opt.Engine.Get(id)
	if err == nil && stateOf(info) != stateRunning {
		err = sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s is not running", id)
	}
	return err
}

// awake returns nil if a sandbox can take a request. It resumes a sandbox with auto-resume.
func (h *Handler) awake(ctx context.Context, id string) error {
	info, err := h.opt.Engine.Get(id)
	if err != nil {
		return err
	}
	switch stateOf(info) {
	case stateRunning:
		return nil
	case statePaused:
		return h.opt.Lives.Wake(ctx, id)
	}
	return sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s is not running", id)
}

// refuseSandbox answers for a sandbox that cannot answer.
func (h *Handler) refuseSandbox(w http.ResponseWriter, to target.Target, err error) {
	body := sandboxRefusal{Sandbox: to.Shown, Message: textGone, Code: http.StatusBadGateway}
	if node := sandbox.MovedTo(err); node != "" {
		w.Header().Set(headerMovedTo, node)
	}
	if code := shortageOf(err); code != "" {
		w.Header().Set(headerError, code) // a gateway may move the sandbox
	}
	switch {
	case errors.Is(err, sandbox.ErrPortClosed):
		body.Message, body.Port = textClosed, to.Port
	case errors.Is(err, sandbox.ErrNoSpace):
		body.Message, body.Code = "The sandbox is paused until there is room on the host", http.StatusInsufficientStorage
	case errors.Is(err, sandbox.ErrBusy), errors.Is(err, sandbox.ErrNoMemory), errors.Is(err, sandbox.ErrClosing),
		errors.Is(err, sandbox.ErrDraining):
		body.Message, body.Code = err.Error(), http.StatusServiceUnavailable
		body.Word = transitionWord(err)
	}
	writeJSON(w, body.Code, body)
}

// transitionWord returns the code of an error about a pause or a resume in progress, or "" for
// other errors.
func transitionWord(err error) string {
	var told *sandbox.Error
	if !errors.As(err, &told) {
		return ""
	}
	switch r := told.Reason(); r {
	case sandbox.ReasonTransitionBusy, sandbox.ReasonTransitionSlow:
		return string(r)
	}
	return ""
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = reply.Write(w, v) // a disconnected client is no error
}
