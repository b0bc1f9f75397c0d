package op

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/store/receipt"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Receipts are recorded when an operation is over and written later, while no fork is running. They
// can be found immediately, and cost a fork only a list entry.

// trace records the steps of an operation. Only one goroutine at a time uses it.
type trace struct {
	now   func() time.Time
	start time.Time
	last  time.Time
	steps []receipt.Step
	// rec gets the steps for the request's trace. It is nil without one.
	rec *steps.Recorder
}

func (o *Ops) newTrace(start time.Time) trace {
	return trace{now: o.cfg.Now, start: start, last: start}
}

// of makes it the trace of a request's operation.
func (t trace) of(ctx context.Context) trace {
	t.rec = steps.From(ctx)
	return t
}

// mark ends a step, which began when the previous one ended.
func (t *trace) mark(step string) {
	now := t.now()
	t.steps = append(t.steps, receipt.Step{Name: step, TookUS: now.Sub(t.last).Microseconds()})
	t.last = now
}

// receipt returns a new receipt of an operation that ends now.
func (t *trace) receipt(op receipt.Op, err error) receipt.Receipt {
	now := t.now()
	r := receipt.Receipt{Op: op, At: now.UTC(), TookUS: now.Sub(t.start).Microseconds(), Steps: t.steps}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// putReceipt records a receipt. fill adds the data that takes time to gather.
func (o *Ops) putReceipt(r receipt.Receipt, fill func(*receipt.Receipt)) {
	kind, of := r.Subject()
	o.receipts.Put(r.Owner, kind, of, func() receipt.Receipt {
		fill(&r)
		return r
	})
}

// Receipts returns receipts, newest first. It omits damaged ones.
func (o *Ops) Receipts(f receipt.Filter) ([]receipt.Receipt, error) {
	list, err := o.receipts.List(f)
	if err != nil {
		o.cfg.Logger.Warn("unreadable receipts", "err", err)
	}
	if list == nil && err != nil {
		return nil, fmt.Errorf("list receipts: %w", err)
	}
	return list, nil
}

// Receipt returns the newest receipt of a sandbox or a snapshot, which may no longer exist.
func (o *Ops) Receipt(kind receipt.Kind, of string) (receipt.Receipt, error) {
	list, err := o.Receipts(receipt.Filter{Kind: kind, Of: of, Limit: 1})
	switch {
	case err != nil:
		return receipt.Receipt{}, err
	case len(list) == 0:
		return receipt.Receipt{}, sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonReceiptNotFound,
			"%s %s has no receipt", kind, sandbox.Clip(of))
	}
	return list[0], nil
}

// WriteReceipts writes recorded receipts until ctx ends. It waits a moment, since children get
// their first work right after their fork, and pauses while forks run.
func (o *Ops) WriteReceipts(ctx context.Context) {
	const pause, retry = 500 * time.Millisecond, 10 * time.Second
	sched.StandBack(o.cfg.Logger, "receipts")
	for {
		select {
		case <-o.receipts.Wake():
		case <-ctx.Done():
			return
		}
		ctxsleep.For(ctx, pause)
		if o.traffic.Wait(ctx) != nil {
			return
		}
		if err := o.receipts.Flush(); err != nil {
			o.cfg.Logger.Error("write receipts", "err", err)
			ctxsleep.For(ctx, retry)
		}
		if now := o.cfg.Now(); o.receipts.Crowded(now) {
			if err := o.receipts.Prune(now, o.existing()); err != nil {
				o.cfg.Logger.Warn("remove old receipts", "err", err)
			}
		}
	}
}

// FlushReceipts writes the remaining receipts when the engine closes.
func (o *Ops) FlushReceipts() {
	if err := o.receipts.Flush(); err != nil {
		o.cfg.Logger.Error("write receipts", "err", err)
	}
}

// existing returns a function that reports whether a receipt's subject exists.
func (o *Ops) existing() func(receipt.Kind, string) bool {
	tags := sync.OnceValue(func() map[string]bool {
		out := map[string]bool{}
		entries, err := o.store.List()
		if err != nil {
			o.cfg.Logger.Warn("list snapshots for receipts", "err", err)
		}
		for _, en := range entries {
			out[en.Tag] = true
		}
		return out
	})
	return func(kind receipt.Kind, of string) bool {
		if kind == receipt.OfSnapshot {
			return tags()[of]
		}
		return o.sandboxes.Lookup(of) != nil
	}
}

// RecoverReceipts makes receipts for adopted sandboxes if the previous daemon ended before writing
// them. A sandbox is in the journal only once its guest has confirmed.
func (o *Ops) RecoverReceipts() {
	have, err := o.receipts.Subjects(receipt.OfSandbox)
	if err != nil {
		o.cfg.Logger.Warn("list receipts", "err", err)
		return
	}
	for _, b := range o.sandboxes.All() {
		info, op := b.Info(), receipt.Fork
		if info.RolledBackTo != "" {
			op = receipt.Rollback
		}
		if have[info.ID] && (op == receipt.Fork || o.toldOf(info)) {
			continue
		}
		o.putReceipt(recovered(op, info, b.Who()), func(*receipt.Receipt) {})
	}
}

// toldOf reports whether the receipt of a sandbox's last successful rollback names its current
// base.
func (o *Ops) toldOf(i sandbox.Info) bool {
	all, _ := o.receipts.List(receipt.Filter{Kind: receipt.OfSandbox, Of: i.ID, Op: receipt.Rollback})
	for _, r := range all {
		if r.Error == "" {
			return r.Parent != nil && r.Parent.ContentHash == i.RolledBackHash
		}
	}
	return false
}

func recovered(op receipt.Op, info sandbox.Info, who sandbox.Identity) receipt.Receipt {
	tag, hash := info.Base()
	return receipt.Receipt{
		Op: op, Sandbox: info.ID, Owner: info.Owner, At: info.CreatedAt.UTC(), TookUS: info.Ready.Microseconds(),
		Recovered: true,
		Parent:    &receipt.Source{Tag: tag, ContentHash: hash}, Identity: identityGiven(who, nil),
		Secrets: receiptSecrets(info.Secrets),
	}
}

// childReceipt records the receipt of a child, successful or not.
func (f *forkOp) childReceipt(b *child, layers func() []receipt.Layer) {
	f.rec.PutChild(b.index, b.timeline)
	r := b.trace.receipt(receipt.Fork, b.err)
	r.Sandbox, r.Owner, r.Secrets = f.childID(b.index), f.req.Owner, receiptSecrets(f.secrets)
	r.Parent = &receipt.Source{Tag: f.req.Tag, ContentHash: f.src.Hash()}
	m, who, answer := b.m, b.who, b.answer
	f.e.putReceipt(r, func(r *receipt.Receipt) {
		r.Parent.Layers = layers()
		fillVM(r, m, who, answer)
	})
}

// leaveReceipts records the receipts of all children.
func (f *forkOp) leaveReceipts() {
	layers := sync.OnceValue(func() []receipt.Layer { return f.e.layersOf(f.src.Files.Manifest) })
	for i := range f.children {
		f.childReceipt(&f.children[i], layers)
	}
}

// receiptSecrets returns the secrets of a sandbox for a receipt.
func receiptSecrets(held []sandbox.HeldSecret) (out []receipt.Secret) {
	for _, h := range held {
		out = append(out, receipt.Secret{Name: h.Name, ID: h.ID, Version: h.Version, Variable: h.Variable})
	}
	return out
}

// fillVM adds how a VM was made and its guest's identity, as far as the operation got.
func fillVM(r *receipt.Receipt, m *launch.VM, who sandbox.Identity, answer *agentv1.IdentityResponse) {
	if m != nil {
		r.VM = &receipt.VM{Pooled: m.Pooled, Prepared: m.Prepared, MapUS: m.Restored.Map.Microseconds(),
			StateUS: m.Restored.State.Microseconds(), PopulatedPages: m.Populated}
	}
	if who.ID != "" {
		r.Identity = identityGiven(who, m)
	}
	if answer != nil {
		r.Guest = guestAnswer(answer)
	}
}

func identityGiven(who sandbox.Identity, m *launch.VM) *receipt.Identity {
	i := &receipt.Identity{Index: who.Index, Parent: who.Parent, Hostname: who.ID, MachineID: who.MachineID}
	if m != nil {
		i.GenerationID, i.EntropyBytes = hex.EncodeToString(m.GenID[:]), launch.EntropyBytes
		i.Way = string(m.IdentityBy)
	}
	return i
}

// guestAnswer returns the agent's proof. It omits the output of hooks, which may be secret.
func guestAnswer(a *agentv1.IdentityResponse) *receipt.Guest {
	g := &receipt.Guest{
		KernelReseeded: a.GetKernelReseeded(), RandomDigest: hex.EncodeToString(a.GetRandomDigest()), BootID: a.GetBootId(),
		ClockStepUS: a.GetClockStepNs() / 1000, TookUS: a.GetTookNs() / 1000,
	}
	for _, s := range a.GetSteps() {
		g.Steps = append(g.Steps,
			receipt.GuestStep{Name: s.GetName(), Done: s.GetDone(), Error: s.GetError(), TookUS: s.GetTookNs() / 1000})
	}
	for _, i := range a.GetInterpreters() {
		g.Interpreters = append(g.Interpreters, receipt.Interpreter{
			Language: i.GetLanguage(), Reseeded: i.GetReseeded(), Later: i.GetLater(), Error: i.GetError(),
			TookUS: i.GetTookNs() / 1000,
		})
	}
	for _, h := range a.GetHooks() {
		g.Hooks = append(g.Hooks,
			receipt.Hook{Name: h.GetName(), ExitCode: int(h.GetExitCode()), Error: h.GetError(), TookUS: h.GetTookNs() / 1000})
	}
	return g
}

// layersOf lists the content of a snapshot: layers, base first, with their size on disk, and files.
// Layer digests are computed in the background and may not be known yet.
func (o *Ops) layersOf(m *snapshot.Manifest) []receipt.Layer {
	out := o.chainOf("memory", m.Memory)
	disks := map[string]bool{}
	for _, d := range m.Disks {
		disks[d.File] = true
		out = append(out, o.chainOf("disk", d.Chain)...)
	}
	for _, f := range m.Files {
		l := receipt.Layer{ID: f.Name, Kind: "other", Bytes: f.Bytes}
		switch {
		case f.Name == m.State.File:
			l.Kind, l.Digest = "state", "sha256:"+m.State.SHA256
		case snapshot.IsWorkingSet(f.Name):
			l.Kind = "working_set"
		case disks[f.Name]:
			l.Kind = "disk"
		}
		out = append(out, l)
	}
	return out
}

func (o *Ops) chainOf(kind string, c snapshot.Chain) []receipt.Layer {
	out := make([]receipt.Layer, 0, len(c.Layers))
	for _, id := range c.Layers {
		l := receipt.Layer{ID: id.String(), Kind: kind}
		if n, err := o.layers.Bytes(id); err == nil { // a layer deleted meanwhile is listed all the same
			l.Bytes = n
		}
		if sum, err := o.layers.Digest(id); err == nil {
			l.Digest = "sha256:" + sum
		}
		out = append(out, l)
	}
	return out
}

// madeSource describes a new snapshot.
func (o *Ops) madeSource(tag string) *receipt.Source {
	en, err := o.store.Get(tag)
	if err != nil {
		return &receipt.Source{Tag: tag}
	}
	return &receipt.Source{Tag: tag, ContentHash: en.ContentHash, Layers: o.layersOf(en.Manifest)}
}

// leaveReceipt records a branch that reached its capture.
func (w *branchOp) leaveReceipt(err error) {
	w.trace.rec.Put(func() []steps.Step { return timelineOf(w) })
	r := w.trace.receipt(receipt.Branch, err)
	r.Sandbox, r.Snapshot, r.Owner = w.req.SandboxID, w.req.Tag, w.req.Owner
	r.Parent = &receipt.Source{Tag: w.base, ContentHash: w.src.Hash()}
	r.Capture, r.Secrets = captureOf(w), receiptSecrets(w.b.Info().Secrets)
	if err == nil {
		r.Made = w.e.madeSource(w.req.Tag)
	}
	below := w.src.Files.Manifest
	w.e.putReceipt(r, func(r *receipt.Receipt) { r.Parent.Layers = w.e.layersOf(below) })
}

func captureOf(w *branchOp) *receipt.Capture {
	c := &receipt.Capture{
		Mode: string(w.req.Mode), Mechanism: w.took.Mechanism, PauseUS: w.took.Pause.Microseconds(),
		Rounds: w.took.Rounds, Bytes: w.took.Bytes, PausedBytes: w.took.PausedBytes,
	}
	for _, s := range w.took.Steps {
		c.PauseSteps = append(c.PauseSteps, receipt.Step{Name: s.Name, TookUS: s.Took.Microseconds()})
	}
	return c
}

// leaveReceipt records a snapshot of a freshly booted parent.
func (c *createOp) leaveReceipt(start time.Time, err error) {
	t := c.e.newTrace(start)
	r := t.receipt(receipt.Snapshot, err)
	r.Snapshot, r.Owner = c.req.Tag, c.req.Owner
	if img := c.src.image; img.Digest != "" {
		r.Image = &receipt.Image{Name: img.Name, Digest: img.Digest}
	}
	for _, s := range c.steps {
		r.Steps = append(r.Steps, receipt.Step{Name: s.Name, TookUS: s.Took.Microseconds(), Bytes: s.Bytes})
	}
	if err == nil {
		r.Made = c.e.madeSource(c.req.Tag)
	}
	c.e.putReceipt(r, func(*receipt.Receipt) {})
}

// leaveReceipt records a rollback that reached a new VM.
func (r *rollbackOp) leaveReceipt(err error) {
	r.next.trace.rec.Put(r.next.timeline)
	rec := r.next.trace.receipt(receipt.Rollback, err)
	rec.Sandbox, rec.Before, rec.Owner = r.b.ID(), r.before, r.b.Info().Owner
	rec.Secrets = receiptSecrets(r.b.Info().Secrets)
	rec.Parent = &receipt.Source{Tag: r.tag, ContentHash: r.f.src.Hash()}
	m, who, answer, below := r.next.m, r.next.who, r.next.answer, r.f.src.Files.Manifest
	r.e.putReceipt(rec, func(rec *receipt.Receipt) {
		rec.Parent.Layers = r.e.layersOf(below)
		fillVM(rec, m, who, answer)
	})
}
