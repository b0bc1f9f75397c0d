package op

import (
	"context"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/agentproto/agentv1"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/undo"
	"github.com/forkd/forkd/internal/vmm"
)

// recordWorkingSet forks one child from the snapshot in the making, brings it as far as
// any child, and keeps what memory it touched on the way in the snapshot: every
// later child will touch the same. A snapshot is as good without that, so only
// the caller's going away is an error.
func (c *createOp) recordWorkingSet(ctx context.Context) error {
	if c.e.cfg.NoWorkingSet {
		return nil
	}
	start := c.e.cfg.Now()
	set, err := c.draft.File(snapshot.WorkingSetFile)
	if err != nil {
		return err
	}
	evalSet, err := c.draft.File(snapshot.EvalSetFile)
	if err != nil {
		return err
	}
	r, evaluated, err := c.workingSetsOf(ctx, set, evalSet)
	if !evaluated {
		c.draft.Drop(evalSet)
	}
	if err == nil {
		c.e.cfg.Logger.Info("working set recorded", "tag", c.req.Tag, "took", c.e.cfg.Now().Sub(start),
			"read_pages", r.ReadPages, "written_pages", r.WrittenPages, "runs", r.Runs)
		return nil
	}
	c.draft.Drop(set)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.e.cfg.Logger.Warn("record the working set; the snapshot's children will be ready somewhat later",
		"tag", c.req.Tag, "err", err)
	return nil
}

// workingSetsOf writes what a child touches on its way to ready, and then, if it has a warmed
// interpreter, what it has touched when it has evaluated something as well.
func (c *createOp) workingSetsOf(ctx context.Context, set, evalSet *os.File) (r vmm.WorkingSetResult,
	evaluated bool, err error) {
	limit := c.e.cfg.RestoreTimeout + c.e.cfg.IdentityTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the working set was not recorded within %s", limit))
	defer cancel()
	var u undo.Stack
	defer u.Run()
	release, err := c.e.admission.VM(admission.Shell(c.e.cfg.ChildMemory, c.src.shape))
	if err != nil {
		return r, false, err
	}
	u.Push(release)
	m, err := c.e.launcher.Spawn(ctx, c.src.shape, false)
	if err != nil {
		return r, false, err
	}
	u.Push(m.Discard)
	src := c.draftSource()
	if err := c.e.launcher.Restore(ctx, src, m); err != nil {
		return r, false, fmt.Errorf("restore: %w", err)
	}
	m.Agent = m.NewAgent()
	u.Push(func() { m.Agent.Close() })
	if err := c.act(ctx, src, m); err != nil {
		return r, false, err
	}
	if err := m.Proc.Pause(ctx); err != nil {
		return r, false, err
	}
	if r, err = m.Proc.WriteWorkingSet(ctx, set); err != nil || len(c.src.warm) == 0 {
		return r, false, err
	}
	if err := c.evaluate(ctx, m, evalSet); err != nil {
		c.e.cfg.Logger.Warn("record what an evaluation touches; the first in each child will take somewhat longer",
			"tag", c.req.Tag, "err", err)
		return r, false, nil
	}
	return r, true, nil
}

// evaluate has each warmed interpreter of a paused child evaluate next to nothing, and
// writes what the child has touched then.
func (c *createOp) evaluate(ctx context.Context, m *launch.VM, set *os.File) error {
	if _, err := m.Proc.Resume(ctx); err != nil {
		return err
	}
	for _, s := range c.src.warm {
		if _, err := m.Agent.Eval(ctx, &agentv1.EvalRequest{Language: s.Language, Code: "None"}); err != nil {
			return fmt.Errorf("evaluate: %w", err)
		}
	}
	if err := m.Proc.Pause(ctx); err != nil {
		return err
	}
	_, err := m.Proc.WriteWorkingSet(ctx, set)
	return err
}

// draftSource are the files that the snapshot will have.
func (c *createOp) draftSource() *launch.Source {
	r := vmm.RestoreConfig{
		State:  c.draft.Opened(snapshot.StateFile),
		Memory: launch.MemoryExtents(c.opened[0].Image),
		Disks:  []vmm.Disk{{File: c.draft.Opened(snapshot.DiskFile(0)), ReadOnly: true}},
		Watch:  true,
	}
	if c.src.image.Upper != "" {
		r.Disks = append(r.Disks, launch.LayeredDisk(c.opened[1].Image, c.src.upper))
	}
	return launch.NewDraftSource(c.req.Tag, c.saidOf, r)
}

// act is a child's way to ready: its identity and a sign of life.
func (c *createOp) act(ctx context.Context, src *launch.Source, m *launch.VM) error {
	who, err := c.e.launcher.NewIdentity("recorder", 1, c.req.Tag, nil)
	if err != nil {
		return err
	}
	if _, err := c.e.launcher.Identify(ctx, src, m, who); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	if _, err := m.Agent.Ping(ctx); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}
