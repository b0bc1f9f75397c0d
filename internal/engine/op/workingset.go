package op

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// recorder finds out what the children of a snapshot in the making touch.
type recorder struct {
	e         *Ops
	draft     *catalog.Draft
	owner     string         // of the snapshot
	src       *launch.Source // of the files that the snapshot will have
	shape     vmspec.Shape
	languages []string // whose interpreters are warm in it
	firstUse  string   // what its children are asked first; empty: a shell
}

// record forks a child from the snapshot, brings it as far as any child, and
// keeps what memory it touched on the way in the snapshot: every later child will touch the same. It
// does so, too, for what is asked of a child first: an evaluation, if there is a warmed interpreter,
// and a program, each in a child that was asked nothing before. A snapshot is as good without that, so
// only the caller's going away is an error.
func (c recorder) record(ctx context.Context) error {
	start := c.e.cfg.Now()
	evaluation := firstRequest{snapshot.EvalSetFile, c.evaluate}
	program := firstRequest{snapshot.ExecSetFile, c.runProgram}
	var r vmm.WorkingSetResult
	var err error
	if len(c.languages) == 0 {
		r, err = c.recordChild(ctx, true, program)
	} else if r, err = c.recordChild(ctx, true, evaluation); err == nil {
		_, err = c.recordChild(ctx, false, program)
	}
	if ctx.Err() != nil { // also of a request that was refused for that
		return context.Cause(ctx)
	}
	if err == nil {
		c.e.cfg.Logger.Info("working set recorded", "tag", c.draft.Tag(), "took", c.e.cfg.Now().Sub(start),
			"read_pages", r.ReadPages, "written_pages", r.WrittenPages, "runs", r.Runs)
		return nil
	}
	c.e.cfg.Logger.Warn("record the working set; the snapshot's children will be ready somewhat later",
		"tag", c.draft.Tag(), "err", err)
	return nil
}

// firstRequest is what may be asked of a child first, and the file for what it has touched then.
type firstRequest struct {
	file string
	ask  func(context.Context, *launch.VM) error
}

// recordChild writes what a child touches on its way to ready, if that is wanted, and then what it has
// touched when the request is answered as well. One that it refuses costs only that set.
func (c recorder) recordChild(ctx context.Context, ready bool,
	first firstRequest) (r vmm.WorkingSetResult, err error) {
	limit := c.e.cfg.RestoreTimeout + c.e.cfg.IdentityTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the working set was not recorded within %s", limit))
	defer cancel()
	var u undo.Stack
	defer u.Run()
	m, err := c.readyChild(ctx, &u)
	if err != nil {
		return r, err
	}
	if ready {
		if r, err = c.writeWorkingSet(ctx, m, snapshot.WorkingSetFile); err != nil {
			return r, err
		}
		if _, err := m.Proc.Resume(ctx); err != nil {
			return r, err
		}
	}
	if err := first.ask(ctx, m); err != nil {
		c.e.cfg.Logger.Warn("record what a first request touches; that of each child will take somewhat longer",
			"tag", c.draft.Tag(), "set", first.file, "err", err)
		return r, nil
	}
	_, err = c.writeWorkingSet(ctx, m, first.file)
	return r, err
}

// readyChild is a child of the snapshot in the making, and has confirmed its identity.
func (c recorder) readyChild(ctx context.Context, u *undo.Stack) (*launch.VM, error) {
	release, err := c.e.admission.VM(admission.Shell(c.e.cfg.ChildMemory, c.shape))
	if err != nil {
		return nil, err
	}
	u.Push(release)
	m, err := c.e.launcher.Spawn(ctx, c.shape, c.owner, false)
	if err != nil {
		return nil, err
	}
	u.Push(m.Discard)
	if err := c.e.launcher.Restore(ctx, c.src, m); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	m.Agent = m.NewAgent()
	u.Push(func() { m.Agent.Close() })
	who, err := c.e.launcher.NewIdentity("recorder", 1, c.draft.Tag(), nil)
	if err != nil {
		return nil, err
	}
	if _, err := c.e.launcher.Identify(ctx, c.src, m, who); err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return m, nil
}

// writeWorkingSet pauses a child, and keeps what it has touched so far in the snapshot.
func (c recorder) writeWorkingSet(ctx context.Context, m *launch.VM,
	name string) (r vmm.WorkingSetResult, err error) {
	if err := m.Proc.Pause(ctx); err != nil {
		return r, err
	}
	set, err := c.draft.File(name)
	if err != nil {
		return r, err
	}
	if r, err = m.Proc.WriteWorkingSet(ctx, set); err != nil {
		c.draft.Drop(set)
	}
	return r, err
}

// firstEvaluation is what is evaluated to learn what a first evaluation touches: statements, output, and a result,
// as users' have. Nobody's child remembers it.
const firstEvaluation = "x = 6 * 7\nprint(x)\nx"

// evaluate has each warmed interpreter of a child evaluate a little.
func (c recorder) evaluate(ctx context.Context, m *launch.VM) error {
	for _, language := range c.languages {
		if _, err := m.Agent.Eval(ctx, &agentv1.EvalRequest{Language: language, Code: firstEvaluation}); err != nil {
			return fmt.Errorf("evaluate: %w", err)
		}
	}
	return nil
}
