package op

import (
	"context"
	"fmt"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/guest"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// deriveOp is one running DeriveSnapshot.
type deriveOp struct {
	e        *Ops
	req      sandbox.DeriveRequest
	progress func(sandbox.Step)
	undo     undo.Stack

	id      string // of the child
	m       *vmproc.VM
	guest   *createOp // runs the steps shared with a parent from an image
	created sandbox.SnapshotInfo
	network *netpolicy.Spec // of the new snapshot
}

// DeriveSnapshot forks a child, runs a program in it, saves the child as a snapshot on top of the
// one it was forked from, and ends the child. A failed or cancelled call leaves no snapshot and no
// files. A program that fails is an error. progress is called from one goroutine, with the
// program's output as it arrives, and may be nil.
func (o *Ops) DeriveSnapshot(ctx context.Context, req sandbox.DeriveRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer done()
	leave, err := o.Drain.Enter()
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer leave()
	if progress == nil {
		progress = func(sandbox.Step) {}
	}
	d := &deriveOp{e: o, req: req, progress: progress}
	defer d.undo.Run() // on success too: the child is no longer needed
	if err := d.check(ctx); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if err := d.run(ctx); err != nil {
		return sandbox.SnapshotInfo{},
			fmt.Errorf("create snapshot %s from %s: %w", req.Tag, req.From, sandbox.Ended(ctx, err))
	}
	o.cfg.Logger.Info("snapshot derived", "tag", req.Tag, "from", req.From)
	return d.created, nil
}

// check refuses requests bound to fail, before a child is forked.
func (d *deriveOp) check(ctx context.Context) error {
	if len(d.req.Exec) == 0 && d.req.Warm == "" {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "nothing to do on top of %s: name a program or warm-up code",
			sandbox.Clip(d.req.From))
	}
	if d.req.ExecTimeout <= 0 {
		d.req.ExecTimeout = sandbox.DefaultDeriveTimeout
	}
	if err := sandbox.CheckLabels(d.req.Labels); err != nil {
		return err
	}
	if err := d.judgeNetwork(); err != nil {
		return err
	}
	if _, err := d.e.catalog.Get(d.req.Tag); err == nil {
		return sandbox.StoreError(fmt.Errorf("create snapshot %s: %w", d.req.Tag, storeerr.ErrExists))
	} else if snapshot.CheckTag(d.req.Tag) != nil {
		return err
	}
	return nil
}

func (d *deriveOp) run(ctx context.Context) error {
	for _, s := range d.steps() {
		d.progress(sandbox.Step{Name: s.name})
		start := d.e.cfg.Now()
		n, err := s.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		done := sandbox.Step{Name: s.name, Done: true, Took: d.e.cfg.Now().Sub(start), Bytes: n}
		if d.guest != nil {
			done.Guest, d.guest.told = d.guest.told, nil
		}
		d.progress(done)
	}
	return nil
}

type deriveStep struct {
	name string
	do   func(context.Context) (bytes int64, err error)
}

func (d *deriveOp) steps() []deriveStep {
	steps := []deriveStep{{sandbox.StepFork, d.fork}}
	if len(d.req.Exec) > 0 {
		steps = append(steps, deriveStep{sandbox.StepExec, d.exec})
	}
	if d.req.Warm != "" {
		steps = append(steps, deriveStep{sandbox.StepWarm,
			func(ctx context.Context) (int64, error) { return d.guest.warm(ctx, nil) }})
	}
	return append(steps,
		deriveStep{sandbox.StepQuiesce, func(ctx context.Context) (int64, error) { return d.guest.quiesce(ctx, nil) }},
		deriveStep{sandbox.StepCapture, d.capture})
}

// fork makes the child. It is listed like any other sandbox while it lives.
func (d *deriveOp) fork(ctx context.Context) (int64, error) {
	req := sandbox.ForkRequest{Tag: d.req.From, N: 1, Owner: d.req.Owner, RenewAgent: true,
		Network: either(d.req.BuildNetwork, d.req.Network), HostPorts: d.req.HostPorts}
	if d.req.Tap != "" {
		req.Tap, req.Network = d.req.Tap, nil
	}
	r, err := d.e.Fork(ctx, req)
	if err != nil {
		return 0, err
	}
	child := r.Children[0]
	if child.Err != nil {
		return 0, child.Err
	}
	if listed := d.e.sandboxes.Lookup(child.Info.ID); listed != nil { // otherwise it was killed already
		d.undo.Push(func() { d.e.sandboxes.End(listed) })
	}
	d.id = child.Info.ID
	d.undo.Push(d.e.Drain.Spare(d.id))
	if _, d.m, err = d.e.sandboxes.Running(d.id); err != nil {
		return 0, err
	}
	d.guest = &createOp{e: d.e, m: d.m, agent: d.m.Agent, req: sandbox.CreateRequest{WarmTimeout: d.req.WarmTimeout},
		src: parentSource{warm: []sandbox.WarmStep{{Language: "python", Code: d.req.Warm}}}}
	return 0, nil
}

// exec runs the program and passes its output to progress.
func (d *deriveOp) exec(ctx context.Context) (int64, error) {
	limit := d.req.ExecTimeout
	late := sandbox.Errorf(sandbox.ErrTimeout, "", "program timed out after %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit+guest.AnswerGrace, late)
	defer cancel()
	ctx, calm := d.m.WhileRoom(ctx, "sandbox "+d.id)
	defer calm()
	var said tail
	start := d.e.cfg.Now()
	r, err := d.m.Agent.Exec(ctx, agentclient.ExecRequest{
		Args: d.req.Exec, User: d.req.User, Timeout: limit, MaxOutput: 1,
		OnOutput: func(_ bool, chunk []byte) {
			said.add(chunk)
			d.progress(sandbox.Step{Name: sandbox.StepExec, Output: chunk})
		},
	})
	d.e.cfg.Observer.Observe(sandbox.OpExec, d.e.cfg.Now().Sub(start), err)
	switch {
	case err != nil:
		return 0, guest.Error(ctx, d.m, d.id, err)
	case r.TimedOut:
		return 0, sandbox.Errorf(sandbox.ErrTimeout, sandbox.ReasonProgramTimeout, "%s timed out after %s%s",
			sandbox.Clip(d.req.Exec[0]), limit, said.text())
	case r.ExitCode != 0:
		return 0, sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonProgramFailed, "%s: %s%s",
			sandbox.Clip(d.req.Exec[0]), r.Status, said.text())
	}
	return 0, nil
}

// capture takes a diff. The child has nothing else to do, so a pause is harmless.
func (d *deriveOp) capture(ctx context.Context) (int64, error) {
	r, err := d.e.branch(ctx, &branchOp{e: d.e, record: true, req: sandbox.BranchRequest{
		SandboxID: d.id, Tag: d.req.Tag, Mode: sandbox.BranchDiff, Owner: d.req.Owner, Network: d.network,
		Labels: d.req.Labels,
	}})
	d.created = r.Snapshot
	return r.Bytes, err
}

// tail keeps the end of a program's output, for its error.
type tail struct{ b []byte }

// tailBytes is the amount of output kept for an error.
const tailBytes = 4 << 10

func (t *tail) add(chunk []byte) {
	t.b = append(t.b, chunk...)
	if over := len(t.b) - tailBytes; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
}

// text returns the last lines, formatted as the end of an error.
func (t *tail) text() string {
	lines := strings.Split(strings.TrimSpace(guesttext.Tail(t.b).String()), "\n")
	if lines[len(lines)-1] == "" {
		return "; it printed nothing"
	}
	return "; the output's last lines:\n" + strings.Join(lines[max(0, len(lines)-vmproc.ConsoleTail):], "\n")
}
