package guest

import (
	"context"
	"errors"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// PortAccess returns the rule for requests from outside to a port of the sandbox. With an error it
// is the zero value, which refuses every request.
func (c *Calls) PortAccess(id string, _ uint16) (sandbox.PortAccess, error) {
	_, info, err := c.cfg.Sandboxes.Find(id)
	if err != nil {
		return sandbox.PortAccess{}, err
	}
	return info.PortAccess(), nil
}

// Wake gets the reason why a sandbox could not be dialled. It reports whether the sandbox now runs,
// so that another try makes sense. A sandbox stalled for lack of disk space resumes when there is
// space: its caller gets the error immediately instead of hanging.
func (c *Calls) Wake(ctx context.Context, id string, cause error) (bool, error) {
	if c.cfg.Wake == nil || errors.Is(cause, sandbox.ErrNoSpace) {
		return false, nil
	}
	_, info, err := c.cfg.Sandboxes.Find(id)
	if err != nil || info.Status != sandbox.StatusPaused && !info.InTransition() {
		return false, nil
	}
	return c.cfg.Wake(ctx, info.ID)
}

// endGrace is how long after its connections broke the end of a VM may be noticed.
const endGrace = 300 * time.Millisecond

// Ended returns why a sandbox ended during a request to its server. It returns nil if the sandbox
// runs.
func (c *Calls) Ended(id string) error {
	_, m, err := c.cfg.Sandboxes.Running(id)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxEnded,
			"sandbox %s ended during the request: it was killed by a client or at its deadline", id)
	case err != nil:
		return err
	case m.WaitEnd(endGrace):
		return sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxEnded,
			"sandbox %s ended during the request: %s", id, m.EndReason())
	}
	return nil
}
