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
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// rollbackOp is one Rollback under way. The sandbox gets a new VM, restored from
// the snapshot and told that it is this sandbox, while the old one runs on. Then
// the two VMs' run directories are exchanged, and that is the moment: until then
// a failure, or the end of the daemon, costs the new VM only; from then on the
// old one is nobody's.
type rollbackOp struct {
	newVM
	old *vmproc.VM
	// before is the tag that the sandbox lies over until now.
	before string
}

// Rollback puts a running sandbox back to a snapshot of its ancestry: one that
// it came from, or that was branched from it. It keeps its name, its addresses
// and its identity; entropy and clock are new. What ran in it has ended. If
// anything fails it runs on as it was.
func (o *Ops) Rollback(ctx context.Context, id, tag string) (_ sandbox.Info, err error) {
	start := o.cfg.Now()
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer done()
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.Info{}, sandbox.StoreError(err)
	}
	r := &rollbackOp{newVM: newVM{e: o, tag: tag}}
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

// prepare takes what the rollback needs: its turn, the sandbox, the snapshot.
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
	if r.b, r.old, err = r.e.sandboxes.Running(id); err != nil { // as it is now that it is our turn
		return err
	}
	if _, r.was, err = r.e.sandboxes.Find(id); err != nil {
		return err
	}
	if err := r.e.catalog.CheckRollback(originOf(r.was), r.tag); err != nil {
		return err
	}
	r.before, _ = r.was.Base()
	src, err := r.e.openForkSource(ctx, r.tag)
	if err != nil {
		return err
	}
	r.from(src, start)
	return nil
}

func (r *rollbackOp) run(ctx context.Context) error {
	failpoint.Here(failpoint.RollbackBegun)
	return r.steps(ctx, step{"restore", r.restore}, step{"identity", r.identify}, step{"exchange", r.exchange},
		step{"end", r.endOld})
}

// restore brings the new VM up.
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

// identify tells the new VM who it is. On failure it goes.
func (r *rollbackOp) identify(ctx context.Context) error {
	r.next.m.Silent = r.b.Info().Network.Tap != ""
	return r.introduce(ctx, func() { failpoint.Here(failpoint.RollbackConfirmed) })
}

// exchange makes the new VM the sandbox's, at one moment.
func (r *rollbackOp) exchange(ctx context.Context) error {
	err := r.b.Exchange(ctx, sandboxes.Exchange{
		Old: r.old, New: r.next.m.VM, How: "was rolled back to snapshot " + r.tag,
		Change: func(i *sandbox.Info) {
			i.RolledBackTo, i.RolledBackHash, i.Network.Wire = r.tag, r.f.src.Hash(), r.next.wire.Name()
			i.PausedIn, i.PausedHash, i.Cold = "", "", false
		},
		Check: func() error { return r.stands(ctx) },
	})
	if err != nil {
		r.drop()
		return err
	}
	r.next.trace.mark("exchange")
	r.settleNetwork(ctx)
	return nil
}

// originOf is where a sandbox comes from.
func originOf(i sandbox.Info) catalog.Origin {
	return catalog.Origin{Sandbox: i.ID, From: []snapshot.Parent{
		{Tag: i.SnapshotTag, ContentHash: i.SnapshotHash}, {Tag: i.RolledBackTo, ContentHash: i.RolledBackHash},
		{Tag: i.PausedIn, ContentHash: i.PausedHash},
	}}
}

// stands checks that the new VM still runs, by having it answer: of one that was
// killed a moment ago alive knows nothing yet, since that waits for the kernel to
// have taken the process apart.
func (r *rollbackOp) stands(ctx context.Context) error {
	limit := r.e.cfg.RestoreTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the new VM did not answer within %s", limit))
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

// endOld ends the VM that was, whose files lie in the new one's directory now.
func (r *rollbackOp) endOld(ctx context.Context) error {
	r.old.Own(nil)
	r.old.Agent.Close()
	r.endOldVM(ctx)
	r.e.procs.Remove(r.next.m.Dir, r.old.Disks.Paths())
	dropPause(r.e, r.was)
	r.e.catalog.CollectLater() // what it lay over may be needed no more
	r.next.trace.mark("end")
	return nil
}
