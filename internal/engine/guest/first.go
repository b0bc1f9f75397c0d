package guest

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Maximum time that background work pauses for a sandbox's first answer. The end of a program's
// answer is not known.
const (
	firstAnswer  = 5 * time.Second
	firstProgram = time.Second
)

// beforeEval populates the working set of a sandbox's first evaluation. The caller calls after when
// the evaluation has ended.
func (c *Calls) beforeEval(ctx context.Context, id string, m *vmproc.VM) (after func()) {
	if !m.FirstEval() {
		return func() {}
	}
	leave := c.cfg.Traffic.First(firstAnswer)
	drop := m.Agent.DialEval(ctx) // meanwhile
	c.populate(ctx, id, m, snapshot.EvalSetFile)
	return func() { drop(); leave() }
}

// beforeExec does the same for the first program, or the first connection to a server, unless code
// was evaluated before. Its time does not count against the request's own limit, which may be
// short: of a hundred concurrent ones, each waits for the others.
func (c *Calls) beforeExec(ctx context.Context, id string) {
	_, m, err := c.cfg.Sandboxes.Running(id)
	if err != nil || !m.FirstExec() { // the request will return the error
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

// populate uses the snapshot the sandbox runs from. If the snapshot is gone, it does nothing.
func (c *Calls) populate(ctx context.Context, id string, m *vmproc.VM, file string) {
	if b := c.cfg.Sandboxes.Lookup(id); b != nil {
		tag, _ := b.Info().Base()
		c.cfg.Populate(ctx, m, c.cfg.SnapshotDir(tag), file)
	}
}
