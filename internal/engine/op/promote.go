package op

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
)

// Promotions puts sandboxes in the place of those they descend from.
type Promotions struct {
	ops    *Ops
	pauses *Pauses

	mu   sync.Mutex      // guards busy; held for moments
	busy map[string]bool // sandboxes in a running promotion
}

// NewPromotions returns Promotions.
func NewPromotions(o *Ops, p *Pauses) *Promotions {
	return &Promotions{ops: o, pauses: p, busy: map[string]bool{}}
}

// promoteOp is one running Promote. The child is paused, so its state does not change any more. Then
// the sandbox above is rolled back to the snapshot of that pause. The exchange of the rollback is the
// commit point: before it, a failure costs only the child's pause; after it, the child is removed,
// by the next daemon if this one ends.
type promoteOp struct {
	*Promotions
	req   sandbox.PromoteRequest
	child *sandboxes.Sandbox
	was   sandbox.Info // the child, as found
	above sandbox.Info // the sandbox that loses its place
	kept  sandbox.SnapshotInfo
	// stopped is set when this promotion has paused the child.
	stopped bool
}

// Promote moves the state of a sandbox to the place of one that it descends from: that one keeps its
// id, addresses, identity, policy, limits and deadline, and has the child's memory, processes and
// disk. The child's own id then names no sandbox. On failure both are as before.
func (p *Promotions) Promote(ctx context.Context, req sandbox.PromoteRequest) (_ sandbox.Promotion, err error) {
	w := &promoteOp{Promotions: p, req: req}
	if err := w.find(); err != nil {
		return sandbox.Promotion{}, err
	}
	release, err := p.claim(w.was.ID, w.above.ID)
	if err != nil {
		return sandbox.Promotion{}, err
	}
	defer release()
	if err := w.keepOld(ctx); err != nil {
		return sandbox.Promotion{}, fmt.Errorf("promote %s: %w", w.was.ID, err)
	}
	info, err := w.replace(ctx)
	if err != nil {
		w.takeBack()
		return sandbox.Promotion{}, fmt.Errorf("promote %s: %w", w.was.ID, err)
	}
	p.ops.cfg.Logger.Info("promoted", "sandbox", w.above.ID, "child", w.was.ID, "kept", w.kept.Tag)
	return sandbox.Promotion{Info: info, Was: w.was.ID, KeptIn: w.kept.Tag, KeptHash: w.kept.ContentHash}, nil
}

// find finds the child and the sandbox above it.
func (w *promoteOp) find() (err error) {
	if w.child, w.was, err = w.ops.sandboxes.Find(w.req.Child); err != nil {
		return err
	}
	if w.was.Status == sandbox.StatusFailed {
		_, _, err = w.ops.sandboxes.Running(w.was.ID) // returns how it ended
		return err
	}
	if w.was.Status == sandbox.StatusPaused && w.was.Cold {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSandboxPaused,
			"sandbox %s is paused without its memory: resume it first", w.was.ID)
	}
	sources, err := w.sources()
	if err != nil {
		return err
	}
	place := sandbox.CanonicalID(w.req.Place)
	switch {
	case len(sources) == 0:
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNoPlace,
			"sandbox %s does not descend from a sandbox: its snapshots were made from images", w.was.ID)
	case place == "":
		place = sources[0]
	case !slices.Contains(sources, place):
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNoPlace, "sandbox %s does not descend from sandbox %s",
			w.was.ID, sandbox.Clip(place))
	}
	return w.findAbove(place)
}

// findAbove finds the sandbox above. It must run, because a paused one has no VM to replace. An error
// about another owner's sandbox is that about an ended one, and names neither.
func (w *promoteOp) findAbove(id string) error {
	_, above, err := w.ops.sandboxes.Find(id)
	if errors.Is(err, sandbox.ErrNotFound) || err == nil && above.Owner != w.was.Owner {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNoPlace,
			"the sandbox that %s was forked from has ended", w.was.ID)
	}
	if err == nil {
		_, _, err = w.ops.sandboxes.Running(id)
	}
	w.above = above
	return err
}

// sources returns the sandboxes that the child descends from, nearest first.
func (w *promoteOp) sources() ([]string, error) {
	above, err := w.ops.catalog.Sources(originOf(w.was))
	if k := w.was.Kin.Parent; k != "" && !slices.Contains(above, k) {
		above = append([]string{k}, above...)
	}
	return above, err
}

// claim refuses a second promotion of a sandbox, or to its place.
func (p *Promotions) claim(ids ...string) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if p.busy[id] {
			return nil, sandbox.Errorf(sandbox.ErrConflict, "", "another promotion of or to sandbox %s is running", id)
		}
	}
	for _, id := range ids {
		p.busy[id] = true
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, id := range ids {
			delete(p.busy, id)
		}
	}, nil
}

// keepOld makes a snapshot of the sandbox above, unless its state is to be discarded.
func (w *promoteOp) keepOld(ctx context.Context) error {
	if w.req.Discard {
		return nil
	}
	r, err := w.ops.Branch(ctx, sandbox.BranchRequest{SandboxID: w.above.ID, Tag: w.req.Tag, Owner: w.req.Owner,
		HostPorts: w.req.HostPorts})
	w.kept = r.Snapshot
	return err
}

// replace pauses the child, gives its state to the sandbox above, and removes the child.
func (w *promoteOp) replace(ctx context.Context) (sandbox.Info, error) {
	paused, leave, err := w.stop(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	info, err := w.ops.rollback(ctx, w.above.ID, paused.PausedIn, w.was.ID)
	if err == nil {
		w.ops.sandboxes.End(w.child)
	}
	leave()
	return info, err
}

// stop pauses the child, and keeps its turn: it cannot be resumed before leave is called.
func (w *promoteOp) stop(ctx context.Context) (_ sandbox.Info, leave func(), err error) {
	paused := w.was
	if w.was.Status != sandbox.StatusPaused {
		w.stopped = true
		if err := w.child.SetPromoting(true); err != nil {
			return sandbox.Info{}, nil, err
		}
		if paused, err = w.pauses.Pause(ctx, w.was.ID, sandbox.PauseOptions{}); err != nil {
			return sandbox.Info{}, nil, err
		}
	}
	if leave, err = w.child.Await(ctx); err != nil {
		return sandbox.Info{}, nil, err
	}
	_, now, err := w.ops.sandboxes.Find(w.was.ID)
	if err == nil && (now.Status != sandbox.StatusPaused || now.PausedHash != paused.PausedHash) {
		err = sandbox.Errorf(sandbox.ErrConflict, "", "sandbox %s was resumed meanwhile by a request to it: try again",
			w.was.ID)
	}
	if err != nil {
		leave()
		return sandbox.Info{}, nil, err
	}
	return now, leave, nil
}

// takeBack resumes the child if this promotion has paused it, and deletes the snapshot of the old
// state.
func (w *promoteOp) takeBack() {
	if w.stopped {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ops.root), w.ops.cfg.BranchTimeout)
		defer cancel()
		w.goOn(ctx, w.child)
	}
	if w.kept.Tag != "" {
		if err := w.ops.catalog.Delete(w.kept.Tag, sandbox.DeleteOptions{}); err != nil {
			w.ops.cfg.Logger.Warn("the snapshot of a promotion that failed stays", "tag", w.kept.Tag, "err", err)
		}
	}
}

// goOn resumes a sandbox that was paused for a promotion.
func (p *Promotions) goOn(ctx context.Context, child *sandboxes.Sandbox) {
	_, _, err := p.pauses.resume(ctx, child.ID(), &resumeOp{newVM: newVM{e: p.pauses.e, same: true}, ours: true})
	if err == nil {
		err = child.SetPromoting(false)
	}
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) && !errors.Is(err, sandboxes.ErrKilled) {
		p.ops.cfg.Logger.Warn("a sandbox stays paused after a promotion that failed", "sandbox", child.ID(), "err", err)
	}
}

// ResumePromoting resumes the sandboxes that the previous daemon has paused for promotions that it
// has not committed.
func (p *Promotions) ResumePromoting(ctx context.Context) {
	for _, i := range p.ops.sandboxes.List() {
		if !i.Promoting || i.Status == sandbox.StatusFailed {
			continue
		}
		if b, _, err := p.ops.sandboxes.Find(i.ID); err == nil {
			p.goOn(ctx, b)
		}
	}
}

// FinishPromotions removes the children of promotions that the previous daemon has committed.
func (p *Promotions) FinishPromotions() {
	for _, above := range p.ops.sandboxes.List() {
		if above.PromotedFrom == "" || above.Status == sandbox.StatusFailed {
			continue
		}
		b, child, err := p.ops.sandboxes.Find(above.PromotedFrom)
		if err == nil && child.Status == sandbox.StatusPaused && child.PausedHash == above.RolledBackHash {
			p.ops.cfg.Logger.Info("a promotion is finished", "sandbox", above.ID, "child", child.ID)
			p.ops.sandboxes.End(b)
		}
	}
}
