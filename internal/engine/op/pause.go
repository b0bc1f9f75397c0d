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
	branchOp
	was  sandbox.Info // the sandbox until now
	hash string       // of the snapshot
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
		branchOp: branchOp{e: o, start: o.cfg.Now(), stay: true, cold: opt.FilesystemOnly}}
	p.trace = o.newTrace(p.start).of(ctx)
	if p.req, err = pauseRequest(o, id); err != nil {
		return sandbox.Info{}, err
	}
	err = p.run(ctx, opt)
	o.cfg.Observer.Observe(sandbox.OpPause, o.cfg.Now().Sub(p.start), err)
	if err != nil {
		return sandbox.Info{}, err
	}
	return p.settled()
}

// settled releases resources the sandbox no longer needs, and reports the pause.
func (p *pauseOp) settled() (sandbox.Info, error) {
	o := p.e
	about := p.was.About()
	if p.why != "" {
		about[sandbox.EventKeyReason] = p.why
	}
	if p.cold { // its base snapshot does not change
		about[sandbox.EventKeyCold] = "true"
	} else {
		dropPause(o, p.was)
		o.catalog.Left(baseHash(p.was))
		o.catalog.HashLater(p.req.Tag)
	}
	o.cfg.Logger.Info("paused", "sandbox", p.req.SandboxID, "tag", p.req.Tag, "cold", p.cold, "bytes", p.took.Bytes,
		"took", o.cfg.Now().Sub(p.start))
	o.cfg.Tell(sandbox.EventPaused, p.req.SandboxID, about)
	_, info, err := o.sandboxes.Find(p.req.SandboxID)
	if err != nil && !p.cold { // it was killed before its snapshot could be deleted
		dropPause(o, sandbox.Info{ID: p.req.SandboxID, PausedIn: p.req.Tag, PausedHash: p.hash})
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
	defer p.undo.Run()
	if err := p.prepare(ctx); err != nil {
		return err
	}
	p.was = p.b.Info()
	if p.cold {
		if err := p.openBoot(ctx); err != nil {
			return err
		}
	}
	flushVolumes(p.e, p.b, p.m)
	p.trace.mark("turn")
	end, err := p.b.BeginPause(p.m, opt.IdleFor)
	if err != nil {
		return err
	}
	p.undo.Push(end)
	stand := p.stand
	if p.cold {
		stand = p.standCold
	}
	if err := stand(ctx); err != nil {
		p.resumeGuest()
		err = fmt.Errorf("pause %s: %w", p.req.SandboxID, p.explain(ctx, err))
		p.leavePauseReceipt(err)
		return err
	}
	p.leavePauseReceipt(nil)
	return nil
}

// stand takes the snapshot and marks the sandbox as paused in it.
func (p *pauseOp) stand(ctx context.Context) error {
	err := p.capture(ctx)
	p.trace.mark("capture")
	if err != nil {
		return err
	}
	ctx, cancel := p.writeLimit(ctx)
	defer cancel()
	st, err := p.m.Proc.Status(ctx)
	if err == nil && st.State != vmm.StatePaused {
		err = fmt.Errorf("the guest is %s: its VMM is of an older forkd", st.State)
	}
	if err != nil {
		return err
	}
	failpoint.Here(failpoint.PauseCaptured)
	if _, err := p.write(ctx); err != nil {
		return err
	}
	failpoint.Here(failpoint.PauseWritten)
	if err := p.settlePause(); err != nil {
		return errors.Join(err, p.draft.Withdraw())
	}
	return nil
}

func (p *pauseOp) settlePause() error {
	if err := p.e.checkCaptured(p.draft, p.digest); err != nil {
		return err
	}
	made, err := p.e.store.Get(p.req.Tag)
	if err != nil {
		return err
	}
	p.hash = made.ContentHash
	p.trace.mark("commit")
	if err = settleVolumes(p.e, p.m.Disks.List()); err != nil {
		return err
	}
	err = p.b.Pause(p.m, sandboxes.PausedIn{Tag: p.req.Tag, Hash: p.hash, Suspend: p.suspend})
	p.trace.mark("settle")
	return err
}

// resumeGuest resumes the guest after a failed pause. The guest may still be running: the capture of a
// cancelled pause may still be in progress.
func (p *pauseOp) resumeGuest() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.e.root), p.e.cfg.BranchTimeout)
	defer cancel()
	if _, err := p.m.Proc.Resume(ctx); err != nil && p.m.Alive() {
		p.e.cfg.Logger.Error("a sandbox does not resume after a failed pause", "sandbox", p.req.SandboxID, "err", err)
	}
	if p.cold && p.m.Alive() {
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
	p.trace.rec.Put(func() []steps.Step { return timelineOf(&p.branchOp) })
	r := p.trace.receipt(receipt.Pause, err)
	r.Sandbox, r.Secrets = p.req.SandboxID, receiptSecrets(p.was.Secrets)
	r.Parent = &receipt.Source{Tag: p.base, ContentHash: p.src.Hash()}
	if r.Cold = p.cold; !p.cold {
		r.Capture = captureOf(&p.branchOp)
	}
	if err == nil && !p.cold {
		r.Made = p.e.madeSource(p.req.Tag)
	}
	below := p.src.Files.Manifest
	p.e.putReceipt(r, func(r *receipt.Receipt) { r.Parent.Layers = p.e.layersOf(below) })
}
