package enginefake

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
)

// Pause pauses a sandbox.
func (h *Host) Pause(e *engine.Engine, id string) sandbox.Info {
	h.T.Helper()
	return h.PauseBy(e, id, sandbox.PauseOptions{})
}

// PauseBy is Pause with options.
func (h *Host) PauseBy(e *engine.Engine, id string, opt sandbox.PauseOptions) sandbox.Info {
	h.T.Helper()
	info, err := e.Pause(h.T.Context(), id, opt)
	if err != nil {
		h.T.Fatal(err)
	}
	return info
}

// Resume resumes a paused sandbox.
func (h *Host) Resume(e *engine.Engine, id string) sandbox.Info {
	h.T.Helper()
	info, err := e.Resume(h.T.Context(), id)
	if err != nil {
		h.T.Fatal(err)
	}
	return info
}

// PauseHost returns an engine with a snapshot "d" and a sandbox of it with a disk.
func PauseHost(t *testing.T) (*Host, *engine.Engine, sandbox.Info) {
	t.Helper()
	h := NewHost(t)
	e := h.Open()
	return h, e, h.Disky(e, 1)[0]
}

// WantPaused checks the refusal of a request to a paused sandbox.
func WantPaused(h *Host, what string, err error) {
	h.T.Helper()
	var told *sandbox.Error
	if !errors.Is(err, sandbox.ErrConflict) || !errors.As(err, &told) || told.Reason() != sandbox.ReasonSandboxPaused {
		h.T.Errorf("%s of a paused one: %v", what, err)
	}
}

// ErrorOf returns the error of a call with another result.
func ErrorOf[T any](_ T, err error) error { return err }
