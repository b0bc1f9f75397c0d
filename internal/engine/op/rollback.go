package op

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// rollbackOp is one running Rollback. The sandbox gets a new VM, restored from the snapshot and
// given the sandbox's identity, while the old VM keeps running. Then the run directories of the two
// VMs are exchanged. This is the commit point: before it, a failure or the end of the daemon costs
// only the new VM; after it, the old VM has no owner.
type rollbackOp struct {
	newVM
	old *vmproc.VM
	// before is the tag of the sandbox's snapshot before the rollback.
	before string
	// promoted is the descendant that the snapshot is the state of, if this is a promotion. The
	// snapshot is not of the sandbox's ancestry then.
	promoted string
}

// Rollback puts a running sandbox back to a snapshot of its ancestry: one that it came from, or one
// branched from it. The sandbox keeps its name, its addresses and its identity. Its entropy and
// clock are new, and its running programs end. On failure the sandbox keeps running unchanged.
func (o *Ops) Rollback(ctx context.Context, id, tag string) (sandbox.Info, error) {
	return o.rollback(ctx, id, tag, "")
}

// rollback does what Rollback does. If promoted is set, it is a descendant that was paused in the
// snapshot.
func (o *Ops) rollback(ctx context.Context, id, tag, promoted string) (_ sandbox.Info, err error) {
	start := o.cfg.Now()
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer done()
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.Info{}, sandbox.StoreError(err)
	}
	r := &rollbackOp{newVM: newVM{e: o, tag: tag}, promoted: promoted}
	defer r.undo.Run()
	if err := r.prepare(ctx, id, start); err != nil {
		return sandbox.Info{}, err
	}
	err = r.run(ctx)
	o.cfg.Observer.Observe(sandbox.OpRollback, o.cfg.Now().Sub(start), err)
	r.leaveReceipt(err)
	if err != nil {
		return sandbox.Info{}, fmt.Errorf("roll sandbox %s back to %s: %w", id, tag, err)
	}
	o.cfg.Logger.Info("rolled back", "sandbox", id, "tag", tag, "took", o.cfg.Now().Sub(start))
	_, info, err := o.sandboxes.Find(id)
	about := r.b.Info().About()
	about[sandbox.EventKeySnapshot] = tag
	o.cfg.Tell(sandbox.EventRolledBack, r.b.ID(), about)
	return info, err
}

// prepare acquires the sandbox's turn, the sandbox and the snapshot.
func (r *rollbackOp) prepare(ctx context.Context, id string, start time.Time) error {
	b, _, err := r.e.sandboxes.Find(id)
	if err != nil {
		return err
	}
	leave, err := b.Await(ctx)
	if err != nil {
		return err
	}
	r.undo.Push(leave)
	if r.b, r.old, err = r.e.sandboxes.Running(id); err != nil { // its current state, now that we have the turn
		return err
	}
	if _, r.was, err = r.e.sandboxes.Find(id); err != nil {
		return err
	}
	if r.promoted == "" {
		if err := r.e.catalog.CheckRollback(originOf(r.was), r.tag); err != nil {
			return err
		}
	}
	r.before, _ = r.was.Base()
	src, err := r.e.openForkSource(ctx, r.tag)
	if err != nil {
		return err
	}
	r.from(src, start)
	r.next.trace.rec = steps.From(ctx)
	return nil
}

func (r *rollbackOp) run(ctx context.Context) error {
	failpoint.Here(failpoint.RollbackBegun)
	return r.steps(ctx, step{"restore", r.restore}, step{"identity", r.identify}, step{"exchange", r.exchange},
		step{"end", r.endOld})
}

// restore creates the new VM.
func (r *rollbackOp) restore(ctx context.Context) error {
	release, err := r.e.admission.VM(oneOfMany(r.e.cfg.ChildMemory, r.f.src))
	if err != nil {
		r.e.cfg.tellRefused("rollback", r.tag, err)
		return err
	}
	r.undo.Push(release)
	if r.next.wire, err = r.bind(ctx); err != nil {
		return err
	}
	return r.launch(ctx, func() { failpoint.Here(failpoint.RollbackRestored) })
}

// identify sends the new VM its identity. On failure it ends the VM.
func (r *rollbackOp) identify(ctx context.Context) error {
	r.next.m.Silent = r.b.Info().Network.Tap != ""
	return r.introduce(ctx, func() { failpoint.Here(failpoint.RollbackConfirmed) })
}

// exchange atomically makes the new VM the sandbox's VM.
func (r *rollbackOp) exchange(ctx context.Context) error {
	err := r.b.Exchange(ctx, sandboxes.Exchange{
		Old: r.old, New: r.next.m.VM, How: "was rolled back to snapshot " + r.tag,
		Change: func(i *sandbox.Info) {
			i.RolledBackTo, i.RolledBackHash, i.Network.Wire = r.tag, r.f.src.Hash(), r.next.wire.Name()
			i.PausedIn, i.PausedHash, i.Cold, i.PromotedFrom = "", "", false, r.promoted
			i.Agent = r.e.cfg.AgentFile.Describe(r.f.src.Agent)
			i.Secrets = sandbox.InheritSecrets(r.f.src.Files.Manifest.Secrets, r.secrets)
		},
		Check: func() error { return r.stands(ctx) },
	})
	if err != nil {
		r.drop()
		return err
	}
	r.next.trace.mark("exchange")
	if err := settleVolumes(r.e, r.next.m.Disks.List()); err != nil {
		r.e.cfg.Logger.Error("settle the volumes of a rolled back sandbox", "sandbox", r.was.ID, "err", err)
	}
	r.settleNetwork(ctx)
	return nil
}

// originOf returns the snapshots a sandbox comes from.
func originOf(i sandbox.Info) catalog.Origin {
	return catalog.Origin{Sandbox: i.ID, From: []snapshot.Parent{
		{Tag: i.SnapshotTag, ContentHash: i.SnapshotHash}, {Tag: i.RolledBackTo, ContentHash: i.RolledBackHash},
		{Tag: i.PausedIn, ContentHash: i.PausedHash},
	}}
}

// stands checks that the new VM still runs by sending it a request. Alive is not enough: it reports
// a killed process as alive until the kernel has torn it down.
func (r *rollbackOp) stands(ctx context.Context) error {
	limit := r.e.cfg.RestoreTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the new VM timed out after %s", limit))
	defer cancel()
	st, err := r.next.m.Proc.Status(ctx)
	if err == nil && st.State == vmm.StateStalled {
		err = vmproc.NoRoom("the new VM", st.Health.Full)
	}
	if err == nil && st.State != vmm.StateRunning {
		err = fmt.Errorf("the new VM is %s", st.State)
	}
	if err != nil {
		return r.reason(ctx, err)
	}
	return nil
}

// endOld ends the old VM. Its files are in the new VM's directory now.
func (r *rollbackOp) endOld(ctx context.Context) error {
	r.old.Own(nil)
	r.old.Agent.Close()
	r.endOldVM(ctx)
	r.e.procs.Remove(r.next.m.Dir, r.old.Disks.Paths())
	dropPause(r.e, r.was)
	r.e.catalog.CollectLater() // its previous base may now be unused
	r.next.trace.mark("end")
	return nil
}
