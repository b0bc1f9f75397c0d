package op

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/store/receipt"
)

// resumeOp is one running Resume. The paused sandbox gets a new VM as in a rollback, then the
// record of its pause is removed. This is the commit point: before it, a failure or the end of the
// daemon costs only the new VM.
type resumeOp struct {
	newVM
	// ours is set for a sandbox that an operation of the daemon has paused. A drain does not refuse it.
	ours bool
}

// maxWaking limits the number of running and waiting resumes.
const maxWaking = 1000

// Resume resumes a paused sandbox in a new VM. The sandbox keeps its name and its identity. Its
// entropy and clock are new, and its old connections are reset. A running sandbox is returned
// unchanged.
func (l *Pauses) Resume(ctx context.Context, id string) (sandbox.Info, error) {
	info, _, err := l.ResumeOnce(ctx, id)
	return info, err
}

// ResumeOnce is like Resume. It also reports whether this call resumed the sandbox, or tried to. Of
// several concurrent calls one resumes it, and the others wait.
func (l *Pauses) ResumeOnce(ctx context.Context, id string) (_ sandbox.Info, tried bool, err error) {
	return l.resume(ctx, id, &resumeOp{newVM: newVM{e: l.e, same: true}})
}

func (l *Pauses) resume(ctx context.Context, id string, r *resumeOp) (_ sandbox.Info, tried bool, err error) {
	o := l.e
	start := o.cfg.Now()
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.Info{}, false, err
	}
	defer done()
	defer r.undo.Run()
	paused, err := r.turn(ctx, id)
	if err != nil || !paused {
		return r.was, false, err
	}
	if err := r.open(ctx, start); err != nil {
		return sandbox.Info{}, true, fmt.Errorf("resume sandbox %s: %w", r.was.ID, err)
	}
	err = r.run(ctx)
	o.cfg.Observer.Observe(sandbox.OpResume, o.cfg.Now().Sub(start), err)
	r.leaveResumeReceipt(err)
	if err != nil {
		return sandbox.Info{}, true, fmt.Errorf("resume sandbox %s: %w", r.was.ID, err)
	}
	o.cfg.Logger.Info("resumed", "sandbox", r.was.ID, "tag", r.tag, "cold", r.was.Cold, "took", o.cfg.Now().Sub(start))
	about := r.was.About()
	if r.was.Cold {
		about[sandbox.EventKeyCold] = "true"
	}
	o.cfg.Tell(sandbox.EventResumed, r.was.ID, about)
	_, info, err := o.sandboxes.Find(id)
	return info, true, err
}

// turn waits for the sandbox's turn and reports whether it is then paused. A running sandbox needs
// no turn.
func (r *resumeOp) turn(ctx context.Context, id string) (paused bool, err error) {
	if r.b, r.was, err = r.e.sandboxes.Find(id); err != nil {
		return false, err
	}
	if r.was.PID != 0 && !r.was.InTransition() && r.was.Status != sandbox.StatusFailed {
		return false, nil
	}
	leave, err := r.b.Await(ctx)
	if err != nil {
		return false, err
	}
	r.undo.Push(leave)
	if _, r.was, err = r.e.sandboxes.Find(id); err != nil {
		return false, err
	}
	switch r.was.Status {
	case sandbox.StatusPaused:
		return true, nil
	case sandbox.StatusFailed:
		_, _, err = r.e.sandboxes.Running(id) // returns how it ended
	}
	return false, err
}

// open acquires a slot and the snapshot for the resume.
func (r *resumeOp) open(ctx context.Context, start time.Time) error {
	if err := r.slot(ctx); err != nil {
		return err
	}
	if !r.ours {
		leave, err := r.e.Drain.Enter()
		if err != nil {
			return err
		}
		r.undo.Push(leave)
	}
	r.undo.Push(r.b.BeginResume())
	r.tag, _ = r.was.Base()
	src, err := r.e.openBase(ctx, r.was)
	if err != nil {
		return err
	}
	r.from(src, start)
	r.next.trace.rec = steps.From(ctx)
	return nil
}

// slot takes a slot for a resume. It refuses if too many resumes are waiting.
func (r *resumeOp) slot(ctx context.Context) error {
	if n := r.e.waking.Add(1); n > maxWaking {
		r.e.waking.Add(-1)
		return sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonResumesBusy, "%d sandboxes are being resumed already", n-1)
	}
	r.undo.Push(func() { r.e.waking.Add(-1) })
	select {
	case r.e.resumes <- struct{}{}:
		r.undo.Push(func() { <-r.e.resumes })
		return nil
	case <-ctx.Done():
		return sandbox.Ended(ctx, context.Cause(ctx))
	}
}

func (r *resumeOp) run(ctx context.Context) error {
	err := r.steps(ctx, step{"restore", r.restore}, step{"identity", r.identify}, step{"settle", r.settle})
	if err != nil {
		r.e.wires.Release(r.next.wire)
	}
	return err
}

// restore creates the new VM.
func (r *resumeOp) restore(ctx context.Context) error {
	if r.was.Cold {
		return r.boot(ctx)
	}
	release, err := r.e.admission.VM(oneOfMany(r.e.cfg.ChildMemory, r.f.src))
	if err != nil {
		return err
	}
	r.undo.Push(release)
	if err := r.bind(ctx); err != nil {
		return err
	}
	return r.launch(ctx, func() { failpoint.Here(failpoint.ResumeRestored) })
}

// bind creates the wire of the new VM. The sandbox keeps its policy, or its tap.
func (r *resumeOp) bind(ctx context.Context) (err error) {
	n := r.was.Network
	if n.Tap != "" {
		r.next.wire, err = r.e.wires.BindTap(n.Tap, r.was.ID)
		return err
	}
	of := sourceOf(r.f.src, r.was.Owner, r.was.Limits, r.was.Kin)
	of.Member = n.MemberOf()
	wires, err := r.e.wires.Bind(ctx, of, n.Effective, r.was.ID)
	if err == nil {
		r.next.wire = wires[0]
	}
	return err
}

// identify sends the new VM its identity. On failure it ends the VM.
func (r *resumeOp) identify(ctx context.Context) error {
	return r.introduce(ctx, func() { failpoint.Here(failpoint.ResumeConfirmed) })
}

// settle atomically makes the new VM the sandbox's VM.
func (r *resumeOp) settle(ctx context.Context) error {
	agent := r.e.cfg.AgentFile.Describe(r.f.src.Agent)
	if r.was.Cold {
		agent = r.bootedAgent(ctx)
	}
	err := r.b.Resume(ctx, r.next.m.VM, func(i *sandbox.Info) {
		i.Agent = agent
		i.Network.Wire = r.next.wire.Name()
		i.Life = i.Life.Resumed(r.e.cfg.Now())
		i.Secrets = r.secrets
	})
	if err != nil {
		r.drop()
		return err
	}
	if err := settleVolumes(r.e, r.next.m.Disks.List()); err != nil {
		r.e.cfg.Logger.Error("settle the volumes of a resumed sandbox", "sandbox", r.was.ID, "err", err)
	}
	r.next.trace.mark("settle")
	return nil
}

// leaveResumeReceipt records a resume that reached a new VM.
func (r *resumeOp) leaveResumeReceipt(err error) {
	r.next.trace.rec.Put(r.next.timeline)
	rec := r.next.trace.receipt(receipt.Resume, err)
	rec.Sandbox, rec.Cold, rec.Secrets = r.was.ID, r.was.Cold, receiptSecrets(r.b.Info().Secrets)
	rec.Parent = &receipt.Source{Tag: r.tag, ContentHash: r.f.src.Hash()}
	m, who, answer, below := r.next.m, r.next.who, r.next.answer, r.f.src.Files.Manifest
	r.e.putReceipt(rec, func(rec *receipt.Receipt) {
		rec.Parent.Layers = r.e.layersOf(below)
		fillVM(rec, m, who, answer)
	})
}
