package sandbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/agentproto/agentclient"
	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/undo"
)

// Names of a derivation's steps, in order; StepWarm and StepQuiesce are as of a
// creation, StepCapture as of a branch.
const (
	StepFork = "fork"
	StepExec = "exec"
)

// DefaultDeriveTimeout is the limit of a derivation's program: installing
// packages takes longer than what DefaultExecTimeout is for.
const DefaultDeriveTimeout = 10 * time.Minute

// DeriveRequest asks for a snapshot on top of another: of a child in which a
// program has run. At least one of Exec and Warm is given.
type DeriveRequest struct {
	Tag  string // of the new snapshot
	From string // the snapshot below it
	Exec []string
	User string // that Exec runs as; empty: the image's
	// ExecTimeout bounds Exec; 0 means DefaultDeriveTimeout.
	ExecTimeout time.Duration
	// Warm is Python code that is run in the warmed interpreter after Exec.
	Warm string
}

// derivation is one DeriveSnapshot under way.
type derivation struct {
	e        *Engine
	req      DeriveRequest
	progress func(Step)
	undo     undo.Stack

	id      string // of the child
	m       *machine
	guest   *creation // the steps that a parent from an image goes through too
	created SnapshotInfo
}

// DeriveSnapshot forks a child, runs a program in it, keeps what became of it as
// a snapshot on top of the one that it was forked from, and ends the child.
// Nothing remains of one that failed or was cancelled; a program that fails is
// an error. progress is called from one goroutine, with the program's output
// as it comes, and may be nil.
func (e *Engine) DeriveSnapshot(ctx context.Context, req DeriveRequest, progress func(Step)) (SnapshotInfo, error) {
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return SnapshotInfo{}, err
	}
	defer done()
	if progress == nil {
		progress = func(Step) {}
	}
	d := &derivation{e: e, req: req, progress: progress}
	defer d.undo.Run() // on success too: the child has done its work
	if err := d.check(ctx); err != nil {
		return SnapshotInfo{}, err
	}
	if err := d.run(ctx); err != nil {
		return SnapshotInfo{}, fmt.Errorf("create snapshot %s from %s: %w", req.Tag, req.From, ended(ctx, err))
	}
	e.cfg.Logger.Info("snapshot derived", "tag", req.Tag, "from", req.From)
	return d.created, nil
}

// check refuses what is bound to fail before a child is forked for it.
func (d *derivation) check(ctx context.Context) error {
	if len(d.req.Exec) == 0 && d.req.Warm == "" {
		return problem(ErrInvalid, "", "nothing to do on top of %s: name a program or warm-up code", clip(d.req.From))
	}
	if d.req.ExecTimeout <= 0 {
		d.req.ExecTimeout = DefaultDeriveTimeout
	}
	if _, err := d.e.SnapshotInfo(ctx, d.req.Tag); err == nil {
		return storeError(fmt.Errorf("create snapshot %s: %w", d.req.Tag, snapshot.ErrExists))
	} else if snapshot.CheckTag(d.req.Tag) != nil {
		return err
	}
	return nil
}

func (d *derivation) run(ctx context.Context) error {
	for _, s := range d.steps() {
		d.progress(Step{Name: s.name})
		start := d.e.cfg.Now()
		n, err := s.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		d.progress(Step{Name: s.name, Done: true, Took: d.e.cfg.Now().Sub(start), Bytes: n})
	}
	return nil
}

type deriveStep struct {
	name string
	do   func(context.Context) (bytes int64, err error)
}

func (d *derivation) steps() []deriveStep {
	steps := []deriveStep{{StepFork, d.fork}}
	if len(d.req.Exec) > 0 {
		steps = append(steps, deriveStep{StepExec, d.exec})
	}
	if d.req.Warm != "" {
		steps = append(steps, deriveStep{StepWarm, func(ctx context.Context) (int64, error) { return d.guest.warm(ctx, nil) }})
	}
	return append(steps,
		deriveStep{StepQuiesce, func(ctx context.Context) (int64, error) { return d.guest.quiesce(ctx, nil) }},
		deriveStep{StepCapture, d.capture})
}

// fork makes the child. It is listed like any other while it lives.
func (d *derivation) fork(ctx context.Context) (int64, error) {
	r, err := d.e.Fork(ctx, ForkRequest{Tag: d.req.From, N: 1})
	if err != nil {
		return 0, err
	}
	child := r.Children[0]
	if child.Err != nil {
		return 0, child.Err
	}
	d.e.mu.Lock()
	listed := d.e.boxes[child.Info.ID]
	d.e.mu.Unlock()
	if listed != nil { // else somebody killed it already
		d.undo.Push(func() { d.e.killBox(listed) })
	}
	d.id = child.Info.ID
	if _, d.m, err = d.e.running(d.id); err != nil {
		return 0, err
	}
	d.guest = &creation{e: d.e, agent: d.m.agent, src: parentSource{warm: []WarmStep{{Language: "python", Code: d.req.Warm}}}}
	return 0, nil
}

// exec runs the program; what it prints goes to progress.
func (d *derivation) exec(ctx context.Context) (int64, error) {
	limit := d.req.ExecTimeout
	late := problem(ErrTimeout, "", "no end of the program within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit+answerGrace, late)
	defer cancel()
	var said tail
	start := d.e.cfg.Now()
	r, err := d.m.agent.Exec(ctx, agentclient.ExecRequest{
		Args: d.req.Exec, User: d.req.User, Timeout: limit, MaxOutput: 1,
		OnOutput: func(_ bool, chunk []byte) {
			said.add(chunk)
			d.progress(Step{Name: StepExec, Output: chunk})
		},
	})
	d.e.cfg.Observer.Observe(OpExec, d.e.cfg.Now().Sub(start), err)
	switch {
	case err != nil:
		return 0, guestError(ctx, d.m, d.id, err)
	case r.TimedOut:
		return 0, problem(ErrTimeout, "allow it more time; nothing was kept", "%s did not end within %s%s", clip(d.req.Exec[0]), limit, said.text())
	case r.ExitCode != 0:
		return 0, problem(ErrInvalid, "correct the command; nothing was kept", "%s: %s%s", clip(d.req.Exec[0]), r.Status, said.text())
	}
	return 0, nil
}

// capture takes a diff: the child has nothing else to do, so a pause is no harm.
func (d *derivation) capture(ctx context.Context) (int64, error) {
	r, err := d.e.Branch(ctx, BranchRequest{SandboxID: d.id, Tag: d.req.Tag, Mode: BranchDiff})
	d.created = r.Snapshot
	return r.Bytes, err
}

// tail keeps the end of what a program prints, for its error.
type tail struct{ b []byte }

// tailBytes is how much of the output an error is made from.
const tailBytes = 4 << 10

func (t *tail) add(chunk []byte) {
	t.b = append(t.b, chunk...)
	if over := len(t.b) - tailBytes; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
}

// text is the last lines, as the end of an error's text.
func (t *tail) text() string {
	lines := strings.Split(strings.TrimSpace(printable(t.b)), "\n")
	if lines[len(lines)-1] == "" {
		return "; it printed nothing"
	}
	return "; the output's last lines:\n" + strings.Join(lines[max(0, len(lines)-consoleTail):], "\n")
}
