package op

import (
	"context"
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/store/receipt"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// pauseOp is one running Pause: a branch whose guest stays stopped after the capture. When its
// snapshot is complete, the store records that the sandbox is paused in it. This is the commit
// point; then the VM ends. On any failure before, the guest resumes.
type pauseOp struct {
	branch branchOp     // saves it
	was    sandbox.Info // the sandbox until now
	hash   string       // of the snapshot
	// boot holds the files the sandbox boots from on resume, if it is paused without its memory.
	boot sandboxes.BootFiles
	// why is the reason for an automatic pause; empty for a requested one.
	why     string
	suspend bool // suspend its deadline while it is paused
}

// Pauses implements the operations that pause and resume sandboxes.
type Pauses struct{ e *Ops }

// NewPauses returns Pauses.
func NewPauses(o *Ops) *Pauses { return &Pauses{o} }

// Pause saves a sandbox in a snapshot and keeps it under its id. It then has no process and no
// memory until Resume. On failure the sandbox keeps running.
func (l *Pauses) Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (_ sandbox.Info, err error) {
	o := l.e
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer done()
	p := &pauseOp{why: opt.Why, suspend: opt.Suspend,
		branch: branchOp{e: o, start: o.cfg.Now(), stay: true, cold: opt.FilesystemOnly}}
	p.branch.trace = o.newTrace(p.branch.start).of(ctx)
	if p.branch.req, err = pauseRequest(o, id); err != nil {
		return sandbox.Info{}, err
	}
	err = p.run(ctx, opt)
	o.cfg.Observer.Observe(sandbox.OpPause, o.cfg.Now().Sub(p.branch.start), err)
	if err != nil {
		return sandbox.Info{}, err
	}
	return p.settled()
}

// settled releases resources the sandbox no longer needs, and reports the pause.
func (p *pauseOp) settled() (sandbox.Info, error) {
	o := p.branch.e
	about := p.was.About()
	if p.why != "" {
		about[sandbox.EventKeyReason] = p.why
	}
	if p.branch.cold { // its base snapshot does not change
		about[sandbox.EventKeyCold] = "true"
	} else {
		dropPause(o, p.was)
		o.catalog.Left(baseHash(p.was))
		o.catalog.HashLater(p.branch.req.Tag)
	}
	o.cfg.Logger.Info("paused", "sandbox", p.branch.req.SandboxID, "tag", p.branch.req.Tag, "cold", p.branch.cold,
		"bytes", p.branch.took.Bytes, "took", o.cfg.Now().Sub(p.branch.start))
	o.cfg.Tell(sandbox.EventPaused, p.branch.req.SandboxID, about)
	_, info, err := o.sandboxes.Find(p.branch.req.SandboxID)
	if err != nil && !p.branch.cold { // it was killed before its snapshot could be deleted
		dropPause(o, sandbox.Info{ID: p.branch.req.SandboxID, PausedIn: p.branch.req.Tag, PausedHash: p.hash})
	}
	return info, err
}

// pauseRequest returns the branch request for a pause.
func pauseRequest(o *Ops, id string) (sandbox.BranchRequest, error) {
	_, info, err := o.sandboxes.Find(id)
	if err != nil {
		return sandbox.BranchRequest{}, err
	}
	random, err := o.random(4)
	if err != nil {
		return sandbox.BranchRequest{}, err
	}
	return sandbox.BranchRequest{SandboxID: info.ID, Tag: sandbox.PauseTag(info.ID, random),
		Mode: sandbox.BranchDiff, Transient: true}, nil
}

func (p *pauseOp) run(ctx context.Context, opt sandbox.PauseOptions) error {
	defer p.branch.undo.Run()
	if err := p.branch.prepare(ctx); err != nil {
		return err
	}
	p.was = p.branch.b.Info()
	if p.branch.cold {
		if err := p.openBoot(ctx); err != nil {
			return err
		}
	}
	flushVolumes(p.branch.e, p.branch.b, p.branch.m)
	p.branch.trace.mark("turn")
	end, err := p.branch.b.BeginPause(p.branch.m, opt.IdleFor)
	if err != nil {
		return err
	}
	p.branch.undo.Push(end)
	stand := p.stand
	if p.branch.cold {
		stand = p.standCold
	}
	if err := stand(ctx); err != nil {
		p.resumeGuest()
		err = fmt.Errorf("pause %s: %w", p.branch.req.SandboxID, p.branch.explain(ctx, err))
		p.leavePauseReceipt(err)
		return err
	}
	p.leavePauseReceipt(nil)
	return nil
}

// stand takes the snapshot and marks the sandbox as paused in it.
func (p *pauseOp) stand(ctx context.Context) error {
	err := p.branch.capture(ctx)
	p.branch.trace.mark("capture")
	if err != nil {
		return err
	}
	ctx, cancel := p.branch.writeLimit(ctx)
	defer cancel()
	st, err := p.branch.m.Proc.Status(ctx)
	if err == nil && st.State != vmm.StatePaused {
		err = fmt.Errorf("the guest is %s: its VMM is of an older forkd", st.State)
	}
	if err != nil {
		return err
	}
	failpoint.Here(failpoint.PauseCaptured)
	if _, err := p.branch.write(ctx); err != nil {
		return err
	}
	failpoint.Here(failpoint.PauseWritten)
	if err := p.settlePause(); err != nil {
		return errors.Join(err, p.branch.draft.Withdraw())
	}
	return nil
}

func (p *pauseOp) settlePause() error {
	if err := p.branch.e.checkCaptured(p.branch.draft, p.branch.digest); err != nil {
		return err
	}
	made, err := p.branch.e.store.Get(p.branch.req.Tag)
	if err != nil {
		return err
	}
	p.hash = made.ContentHash
	p.branch.trace.mark("commit")
	if err = settleVolumes(p.branch.e, p.branch.m.Disks.List()); err != nil {
		return err
	}
	err = p.branch.b.Pause(p.branch.m, sandboxes.PausedIn{Tag: p.branch.req.Tag, Hash: p.hash, Suspend: p.suspend})
	p.branch.trace.mark("settle")
	return err
}

// resumeGuest resumes the guest after a failed pause. The guest may still be running: the capture of a
// cancelled pause may still be in progress.
func (p *pauseOp) resumeGuest() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.branch.e.root), p.branch.e.cfg.BranchTimeout)
	defer cancel()
	if _, err := p.branch.m.Proc.Resume(ctx); err != nil && p.branch.m.Alive() {
		p.branch.e.cfg.Logger.Error("a sandbox does not resume after a failed pause",
			"sandbox", p.branch.req.SandboxID, "err", err)
	}
	if p.branch.cold && p.branch.m.Alive() {
		p.thaw(ctx)
	}
}

func baseHash(i sandbox.Info) string {
	_, hash := i.Base()
	return hash
}

// dropPause deletes the snapshot a sandbox was last paused in, if the sandbox is now based on
// another one or has ended. Snapshots and sandboxes built on it remain. It does the same with the
// snapshot that a promoted child was paused in.
func dropPause(o *Ops, was sandbox.Info) {
	dropUnused(o, was.ID, was.PausedIn, was.PausedHash)
	if was.PromotedFrom != "" {
		dropUnused(o, was.ID, was.RolledBackTo, was.RolledBackHash)
	}
}

func dropUnused(o *Ops, id, tag, hash string) {
	if tag == "" || len(o.sandboxes.Using(tag, hash)) > 0 {
		return
	}
	if en, err := o.store.Get(tag); err != nil || en.ContentHash != hash {
		return // it is gone, or was replaced
	}
	if err := o.catalog.Delete(tag, sandbox.DeleteOptions{Force: true}); err != nil {
		o.cfg.Logger.Warn("delete the snapshot of a paused sandbox", "sandbox", id, "tag", tag, "err", err)
	}
}

// Drop deletes the snapshot in which an ended sandbox was last paused, and takes its volumes and its place in a
// private network from it.
func (l *Pauses) Drop(was sandbox.Info) {
	dropPause(l.e, was)
	releaseVolumes(l.e, was)
	l.e.networks.Leave(was.ID)
}

// leavePauseReceipt records a pause that reached its capture.
func (p *pauseOp) leavePauseReceipt(err error) {
	p.branch.trace.rec.Put(func() []steps.Step { return timelineOf(&p.branch) })
	r := p.branch.trace.receipt(receipt.Pause, err)
	r.Sandbox, r.Secrets = p.branch.req.SandboxID, receiptSecrets(p.was.Secrets)
	r.Parent = &receipt.Source{Tag: p.branch.base, ContentHash: p.branch.src.Hash()}
	if r.Cold = p.branch.cold; !p.branch.cold {
		r.Capture = captureOf(&p.branch)
	}
	if err == nil && !p.branch.cold {
		r.Made = p.branch.e.madeSource(p.branch.req.Tag)
	}
	below := p.branch.src.Files.Manifest
	p.branch.e.putReceipt(r, func(r *receipt.Receipt) { r.Parent.Layers = p.branch.e.layersOf(below) })
}
