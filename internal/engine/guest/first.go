package guest

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// How long background work stands back for a sandbox's first answer, at most. Nobody tells when a program
// has answered.
const (
	firstAnswer  = 5 * time.Second
	firstProgram = time.Second
)

// beforeEval has what a sandbox's first evaluation will touch mapped; after is called when that has ended.
func (c *Calls) beforeEval(ctx context.Context, id string, m *vmproc.VM) (after func()) {
	if !m.FirstEval() {
		return func() {}
	}
	leave := c.cfg.Traffic.First(firstAnswer)
	drop := m.Agent.DialEval(ctx) // meanwhile
	c.populate(ctx, id, m, snapshot.EvalSetFile)
	return func() { drop(); leave() }
}

// beforeExec does so for its first program, or connection to a server in it, if nothing was evaluated yet.
// It is not part of the time that the request itself has, which may be short: of a hundred at once each
// waits for the others.
func (c *Calls) beforeExec(ctx context.Context, id string) {
	_, m, err := c.cfg.Sandboxes.Running(id)
	if err != nil || !m.FirstExec() { // the request will say what is wrong
		return
	}
	ctx, done, err := c.cfg.Begin(ctx)
	if err != nil {
		return
	}
	defer done()
	c.cfg.Traffic.First(firstProgram)
	c.populate(ctx, id, m, snapshot.ExecSetFile)
}

// populate is by the snapshot that the sandbox runs from; of one that is gone, nothing is known.
func (c *Calls) populate(ctx context.Context, id string, m *vmproc.VM, file string) {
	if b := c.cfg.Sandboxes.Lookup(id); b != nil {
		tag, _ := b.Info().Base()
		c.cfg.Populate(ctx, m, c.cfg.SnapshotDir(tag), file)
	}
}
