package op

import (
	"strconv"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// tellRefused emits an event: the host has no room for an operation on a snapshot.
func (c *Config) tellRefused(what, tag string, err error) {
	c.Tell(sandbox.EventRefused, tag, map[string]string{"operation": what, sandbox.EventKeyReason: err.Error()})
}

// tell emits an event about a new snapshot of the sandbox.
func (w *branchOp) tell() {
	about := w.b.Info().About()
	about[sandbox.EventKeySnapshot] = w.req.Tag
	about["mode"], about["pause_us"] = string(w.req.Mode), strconv.FormatInt(w.took.Pause.Microseconds(), 10)
	w.e.cfg.Tell(sandbox.EventBranched, w.req.SandboxID, about)
}
