package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/failpoint"
	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/undo"
	"github.com/forkd/forkd/internal/vmmctl"
)

// rollback is one Rollback under way. The sandbox gets a new VM, restored from
// the snapshot and told that it is this sandbox, while the old one runs on. Then
// the two VMs' run directories are exchanged, and that is the moment: until then
// a failure, or the end of the daemon, costs the new VM only; from then on the
// old one is nobody's.
type rollback struct {
	e     *Engine
	tag   string
	b     *box
	old   *machine
	f     *forking
	birth birth // the new VM
	// before is the tag that the sandbox lies over until now.
	before string
	undo   undo.Stack
}

// Rollback puts a running sandbox back to a snapshot of its own line: one that
// it came from, or that was branched from it. It keeps its name, its addresses
// and its identity; entropy and clock are new. What ran in it has ended. If
// anything fails it runs on as it was.
func (e *Engine) Rollback(ctx context.Context, id, tag string) (_ Info, err error) {
	start := e.cfg.Now()
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return Info{}, err
	}
	defer done()
	if err := snapshot.CheckTag(tag); err != nil {
		return Info{}, storeError(err)
	}
	r := &rollback{e: e, tag: tag}
	defer r.undo.Run()
	if err := r.prepare(ctx, id, start); err != nil {
		return Info{}, err
	}
	err = r.run(ctx)
	e.cfg.Observer.Observe(OpRollback, e.cfg.Now().Sub(start), err)
	r.leaveReceipt(err)
	if err != nil {
		return Info{}, fmt.Errorf("roll sandbox %s back to %s: %w", id, tag, err)
	}
	e.cfg.Logger.Info("rolled back", "sandbox", id, "tag", tag, "took", e.cfg.Now().Sub(start))
	return e.Get(id)
}

// prepare takes what the rollback needs: its turn, the sandbox, the snapshot.
func (r *rollback) prepare(ctx context.Context, id string, start time.Time) error {
	b, _, err := r.e.running(id)
	if err != nil {
		return err
	}
	leave, err := b.turn(ctx)
	if err != nil {
		return err
	}
	r.undo.Push(leave)
	if r.b, r.old, err = r.e.running(id); err != nil { // as it is now that it is our turn
		return err
	}
	_, info, err := r.e.find(id)
	if err != nil {
		return err
	}
	if err := r.e.checkLine(info, r.tag); err != nil {
		return err
	}
	r.before, _ = info.Base()
	src, err := r.e.openForkSource(ctx, r.tag)
	if err != nil {
		return err
	}
	r.undo.Push(src.close)
	r.birth.trace = r.e.newTrace(start)
	r.birth.trace.mark("turn")
	r.f = &forking{e: r.e, req: ForkRequest{Tag: r.tag, N: 1}, start: start, src: src}
	return nil
}

func (r *rollback) run(ctx context.Context) error {
	r.e.traffic.enter()
	defer r.e.traffic.leave()
	defer r.e.pools.wake()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.b.life, func() { cancel(context.Cause(r.b.life)) })()
	for _, s := range []struct {
		name string
		do   func(context.Context) error
	}{{"restore", r.restore}, {"identity", r.identify}, {"exchange", r.exchange}, {"end", r.endOld}} {
		r.e.cfg.rolling(s.name)
		if err := s.do(ctx); err != nil {
			return ended(ctx, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return nil
}

// restore brings the new VM up. It belongs to nobody in the journal.
func (r *rollback) restore(ctx context.Context) error {
	release, err := r.e.memory.admit(r.e.cfg.ChildMemory)
	if err != nil {
		return err
	}
	r.undo.Push(release)
	err = r.f.restoreInto(ctx, &r.birth)
	r.birth.trace.mark("restore")
	failpoint.Here(failpoint.RollbackRestored)
	return err
}

// identify tells the new VM who it is. On failure it goes.
func (r *rollback) identify(ctx context.Context) error {
	err := r.f.introduce(ctx, &r.birth, r.b.who)
	failpoint.Here(failpoint.RollbackConfirmed)
	if err == nil {
		return nil
	}
	err = r.reason(ctx, err)
	r.drop()
	return err
}

// reason is why the new VM did not do what it was asked: its end, if that was it.
func (r *rollback) reason(ctx context.Context, err error) error {
	m := r.birth.m
	if !alive(m) || ctx.Err() == nil && gone(err) && waitEnd(m, 50*time.Millisecond) {
		return endError(m)
	}
	return err
}

// drop ends a new VM that is not to be.
func (r *rollback) drop() {
	r.birth.m.agent.Close()
	r.e.discard(r.birth.m)
}

// exchange makes the new VM the sandbox's, at one moment.
func (r *rollback) exchange(ctx context.Context) (err error) {
	b, e := r.b, r.e
	defer func() {
		if err != nil {
			r.drop()
		}
	}()
	b.files.Lock()
	defer b.files.Unlock()
	rec, err := r.record()
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // the last moment at which the caller can change its mind
		return context.Cause(ctx)
	}
	next := r.successor()
	if err := writeJSON(filepath.Join(r.birth.m.dir, boxJournal), rec); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	e.cfg.rolling("rename")
	failpoint.Here(failpoint.RollbackRecorded)
	if err := r.stands(ctx); err != nil {
		return err
	}
	// If it ends from here on it ends as the sandbox's VM: fail waits for b.files,
	// and then finds it in the box.
	if !e.own(next, func() { e.fail(b, next) }) {
		return endError(r.birth.m)
	}
	if err := exchangeDirs(r.birth.m.dir, b.dir); err != nil {
		return err
	}
	failpoint.Here(failpoint.RollbackExchanged)
	next.proc.Moved(b.dir)
	r.birth.m.agent.Close() // its connections began at the other address
	next.agent = newAgent(next)
	how := "was rolled back to snapshot " + r.tag
	r.old.replaced.Store(&how)
	e.mu.Lock()
	if b.disks.isHeld() { // the hold goes with the sandbox, not with its VM
		next.disks.setHeld()
	}
	b.m, b.info, b.disks = next, rec.Info, next.disks
	e.mu.Unlock()
	r.birth.trace.mark("exchange")
	return nil
}

// record is what the journal will say of the sandbox, unless it has ended.
func (r *rollback) record() (boxRecord, error) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	b := r.b
	switch {
	case b.killing:
		return boxRecord{}, errKilled
	case b.m != r.old:
		return boxRecord{}, problem(ErrGuestGone, "kill it and fork another", "the sandbox has failed meanwhile: %s", b.info.Reason)
	}
	rec := b.record()
	rec.Disks = r.birth.m.disks.list()
	rec.Info.PID = r.birth.m.proc.PID()
	rec.Info.Shape = r.birth.m.shape
	rec.Info.RolledBackTo, rec.Info.RolledBackHash = r.tag, r.f.src.hash()
	return rec, nil
}

// stands checks that the new VM still runs, by having it answer: of one that was
// killed a moment ago alive knows nothing yet, since that waits for the kernel to
// have taken the process apart.
func (r *rollback) stands(ctx context.Context) error {
	limit := r.e.cfg.RestoreTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, problem(ErrTimeout, "", "the new VM did not answer within %s", limit))
	defer cancel()
	st, err := r.birth.m.proc.Status(ctx)
	if err == nil && st.State != vmmctl.StateRunning {
		err = fmt.Errorf("the new VM is %s", st.State)
	}
	if err != nil {
		return r.reason(ctx, err)
	}
	return nil
}

// successor is the new VM under the sandbox's directory.
func (r *rollback) successor() *machine {
	m := r.birth.m
	next := &machine{proc: m.proc, dir: r.b.dir, shape: m.shape, cid: m.cid, disks: m.disks}
	r.e.watch(next)
	return next
}

// endOld ends the VM that was, whose files lie in the new one's directory now.
func (r *rollback) endOld(context.Context) error {
	r.e.own(r.old, nil)
	r.old.agent.Close()
	end(r.old)
	removeVM(r.birth.m.dir, r.old.disks.paths())
	r.birth.trace.mark("end")
	return nil
}

// exchangeDirs exchanges two directories of the run directory at one moment.
func exchangeDirs(a, b string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	return nil
}
