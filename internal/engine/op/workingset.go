package op

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/store/volume"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// recorder records the working sets of the children of a draft snapshot.
type recorder struct {
	e         *Ops
	draft     *catalog.Draft
	owner     string         // of the snapshot
	src       *launch.Source // files of the future snapshot
	shape     vmspec.Shape
	languages []string // languages with warm interpreters in it
	firstUse  string   // first request to its children; empty for a shell
}

// record forks a child from the draft snapshot, makes it ready like any child, and saves the memory
// it touched on the way in the snapshot. Every later child touches the same pages. record does the
// same for a child's first request: an evaluation, if the snapshot has a warm interpreter, and a
// program, each in a child without earlier requests. A snapshot works without working sets, so only
// the caller's cancellation is an error.
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
	if err == nil && c.shape.Slots > 0 && c.src.Agent.Can(agentproto.CanVolumes) {
		err = c.recordVolume(ctx)
	}
	if ctx.Err() != nil { // also if the request was refused because of it
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

// firstRequest is a likely first request to a child, and the file for the pages it touches.
type firstRequest struct {
	file string
	ask  func(context.Context, *launch.VM) error
}

// recordChild writes the pages a child touches until it is ready, if ready is set. It then writes
// the pages touched when the request is answered as well. If the child refuses the request, only
// that set is missing.
func (c recorder) recordChild(ctx context.Context, ready bool,
	first firstRequest) (r vmm.WorkingSetResult, err error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var u undo.Stack
	defer u.Run()
	m, err := c.readyChild(ctx, &u, func(context.Context, *launch.VM) error { return nil })
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
		c.e.cfg.Logger.Warn("record the working set of a first request; each child's first request takes longer",
			"tag", c.draft.Tag(), "set", first.file, "err", err)
		return r, nil
	}
	_, err = c.writeWorkingSet(ctx, m, first.file)
	return r, err
}

func (c recorder) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := c.e.cfg.RestoreTimeout + c.e.cfg.IdentityTimeout
	return context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "recording the working set timed out after %s", limit))
}

// recordVolume writes the pages touched by a child with an empty volume, until it is ready.
func (c recorder) recordVolume(ctx context.Context) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var u undo.Stack
	defer u.Run()
	m, err := c.readyChild(ctx, &u, c.plugBlank)
	if err == nil {
		_, err = c.writeWorkingSet(ctx, m, snapshot.VolumeSetFile)
	}
	return err
}

// plugBlank gives a restored child an empty volume of the smallest size, which ends with it.
func (c recorder) plugBlank(ctx context.Context, m *launch.VM) error {
	index := len(c.src.Restore.Disks)
	_, top, err := m.AddClone(index, nil, nil)
	if err != nil {
		return err
	}
	defer top.Close()
	if err := volume.Mkfs(top, volume.MinBytes); err != nil {
		return err
	}
	m.Mounts = []*agentv1.VolumeMount{volumeMount(index, index-c.shape.Disks, "/run/forkd-recorder", volume.MinBytes)}
	return client.Plug(ctx, m.Proc, []vmm.Disk{{Overlay: top, Size: volume.MinBytes}})
}

// readyChild returns a child of the draft snapshot that has confirmed its identity. prepare gets it before it runs.
func (c recorder) readyChild(ctx context.Context, u *undo.Stack,
	prepare func(context.Context, *launch.VM) error) (*launch.VM, error) {
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
	if err := prepare(ctx, m); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
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

// writeWorkingSet pauses a child and saves the pages touched so far in the snapshot.
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

// firstEvaluation is evaluated to record the pages touched by a first evaluation. It has
// statements, output and a result, like user code. No user's child sees it.
const firstEvaluation = "x = 6 * 7\nprint(x)\nx"

// evaluate runs a short evaluation in each warm interpreter of a child.
func (c recorder) evaluate(ctx context.Context, m *launch.VM) error {
	for _, language := range c.languages {
		if _, err := m.Agent.Eval(ctx, &agentv1.EvalRequest{Language: language, Code: firstEvaluation}); err != nil {
			return fmt.Errorf("evaluate: %w", err)
		}
	}
	return nil
}
