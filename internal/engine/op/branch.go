package op

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// branchOp is one running Branch. Its snapshot consists of the sandbox's private dirty pages and
// blocks, one layer each, over the layers of the snapshot the sandbox was forked from.
type branchOp struct {
	e   *Ops
	req sandbox.BranchRequest
	b   *sandboxes.Sandbox
	m   *vmproc.VM
	src *launch.Source // snapshot the sandbox was forked from, or rolled back to
	// base is the tag of src.
	base  string
	agent snapshot.Agent // of the sandbox
	trace trace

	draft    *catalog.Draft
	memory   *os.File    // captured memory, written by the VMM at guest offsets; an unnamed file
	index    *os.File    // page set of the captured memory
	state    *os.File    // VMM state; an unnamed file
	disks    []diskStack // in the order of the sandbox's writable disks
	digest   *os.File    // digests of the whole snapshot; nil without an oracle
	took     vmm.CaptureResult
	start    time.Time
	network  netpolicy.Spec       // the sandbox's policy when it is branched
	known    []netpolicy.Exported // names known to its guest at the capture
	undo     undo.Stack
	length   time.Duration    // of the capture
	told     []steps.Reported // the guest's steps before a pause without its memory
	captured time.Duration    // time from start until the VMM had captured
	// owns maps the paths of the overlay files that this branch reads to the open files.
	owns map[string]*os.File
	// touched lists the overlay files that this branch created or dropped; see removeOrphans.
	touched []string
	// stay marks a branch for a pause. The guest stays stopped after the capture, and its VM ends.
	stay bool
	// cold skips the memory capture. No snapshot is made.
	cold bool
	// group marks the branch of a member of a group, which is captured with the others.
	group bool
	// cut is this VMM's end of a consistent cut over a group. May be nil.
	cut *os.File
	// record records the working set of the snapshot's children before the snapshot is committed.
	record bool
}

// Branch takes a snapshot of a running sandbox. The sandbox keeps running even on failure. A failed
// branch leaves no snapshot behind.
func (o *Ops) Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error) {
	leave, err := o.Drain.Enter()
	if err != nil {
		return sandbox.BranchResult{}, err
	}
	defer leave()
	return o.branch(ctx, &branchOp{e: o, req: req})
}

func (o *Ops) branch(ctx context.Context, w *branchOp) (_ sandbox.BranchResult, err error) {
	caller, req := ctx, w.req
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.BranchResult{}, err
	}
	w.start = o.cfg.Now()
	w.trace = o.newTrace(w.start).of(ctx)
	w.undo.Push(done)
	defer func() {
		if w != nil {
			w.undo.Run()
		}
	}()
	if err := w.prepare(ctx); err != nil {
		return sandbox.BranchResult{}, err
	}
	w.trace.mark("turn")
	err = w.capture(ctx)
	w.trace.mark("capture")
	if err != nil {
		err = fmt.Errorf("branch %s: %w", req.SandboxID, w.explain(ctx, err))
		w.giveUp(err)
		return sandbox.BranchResult{}, err
	}
	if req.NoWait {
		r := w.result()
		r.Snapshot, _ = o.catalog.Get(w.req.Tag)
		r.AfterResume = w.sinceResume()
		w.trace.rec.Put(func() []steps.Step { return timelineOf(w) }) // the rest comes too late for the request's trace
		w.trace.rec = nil
		later := w
		w = nil // the goroutine owns the undo stack now
		go later.finishAlone()
		return r, nil
	}
	if err := w.finish(ctx); err != nil {
		err = fmt.Errorf("branch %s: %w", req.SandboxID, w.explain(ctx, err))
		w.giveUp(err)
		return sandbox.BranchResult{}, err
	}
	w.leaveReceipt(nil)
	r := w.result()
	w.undo.Run() // forks from the tag can start now
	if req.N > 0 {
		r.Fork = o.forkBranch(caller, w.req)
	}
	r.Snapshot, err = o.catalog.Get(w.req.Tag)
	r.AfterResume = w.sinceResume()
	return r, err
}

// giveUp records a failed branch in the draft and in a receipt.
func (w *branchOp) giveUp(err error) {
	w.draft.Because(err)
	w.leaveReceipt(err)
}

// forkBranch forks the children requested with a branch. The snapshot exists whether or not they
// succeed, so an error is reported in the children.
func (o *Ops) forkBranch(ctx context.Context, req sandbox.BranchRequest) *sandbox.ForkResult {
	r, err := o.Fork(ctx, req.Children())
	if err != nil {
		for i := range req.N {
			r.Children = append(r.Children, sandbox.Child{Index: i + 1, Err: err})
		}
	}
	return &r
}

// prepare checks the request and acquires the branch's turn, the sandbox, the snapshot below and
// the new tag.
func (w *branchOp) prepare(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	limit := w.e.cfg.BranchTimeout // a VMM that does not answer must not keep the slot
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the branch timed out after %s", limit))
	defer cancel()
	if !w.group { // a group has one slot
		if err := w.slot(ctx); err != nil {
			return err
		}
	}
	b, _, err := w.e.sandboxes.Find(w.req.SandboxID)
	if err != nil {
		return err
	}
	leave, err := b.Await(ctx)
	if err != nil {
		return err
	}
	w.undo.Push(leave)
	if w.b, w.m, err = w.e.sandboxes.Running(w.req.SandboxID); err != nil { // its current state, now that we have the turn
		return err
	}
	w.req.Owner = cmp.Or(w.req.Owner, w.b.Info().Owner)
	if err := w.inheritLabels(); err != nil {
		return err
	}
	if err := w.fit(); err != nil {
		return err
	}
	if err := w.judgeNetwork(); err != nil {
		return err
	}
	w.undo.Push(w.removeOrphans)
	if w.src, err = w.e.openBase(ctx, w.b.Info()); err != nil {
		return fmt.Errorf("branch %s: its parent snapshot: %w", w.req.SandboxID, err)
	}
	w.undo.Push(w.src.Close)
	if err := w.admitBuffer(); err != nil {
		return err
	}
	w.base = w.src.Files.Manifest.Tag
	w.agent = w.askAgent(ctx)
	if err := w.reserve(); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		return fmt.Errorf("branch %s: %w", w.req.SandboxID, w.explain(ctx, err))
	}
	return nil
}

// inheritLabels adds the sandbox's labels to the request's. The snapshot of a pause and the scratch of a derivation
// are no branches to their users, and have only the labels of the request.
func (w *branchOp) inheritLabels() error {
	if w.stay || w.record {
		return nil
	}
	w.req.Labels = labels.Merge(labels.Inherited(w.b.Info().Labels), w.req.Labels)
	if err := sandbox.CheckLabels(w.req.Labels); err != nil {
		return fmt.Errorf("the branch has its own labels and those of %s: %w", w.req.SandboxID, err)
	}
	return nil
}

// fit refuses a sandbox if its disk does not allow a branch.
func (w *branchOp) fit() error {
	who := "sandbox " + w.req.SandboxID
	if err := w.m.HasRoom(who); err != nil || w.req.Force {
		return err
	}
	return w.m.Intact(who)
}

func (w *branchOp) check() error {
	r := &w.req
	switch r.Mode {
	case "":
		r.Mode = sandbox.BranchLive
	case sandbox.BranchLive, sandbox.BranchDiff, sandbox.BranchFull:
	default:
		return sandbox.Errorf(sandbox.ErrInvalid, "", "mode is %q, want live, diff or full", sandbox.Clip(string(r.Mode)))
	}
	switch {
	case r.N < 0 || r.N > sandbox.MaxFork:
		return sandbox.Errorf(sandbox.ErrInvalid, "", "n is %d, want 0 to %d", r.N, sandbox.MaxFork)
	case r.N > 0 && r.NoWait:
		return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonWaitForChildren, "children were asked for without waiting")
	case r.MaxPause < 0:
		return sandbox.Errorf(sandbox.ErrInvalid, "", "the pause's limit is %s", r.MaxPause)
	}
	if err := sandbox.CheckEnv(r.Env); err != nil {
		return err
	}
	if _, err := r.Life.Set(w.start); err != nil {
		return err
	}
	if err := sandbox.CheckLabels(r.Labels); err != nil {
		return err
	}
	if r.Tag == "" {
		random, err := w.e.random(3)
		if err != nil {
			return err
		}
		r.Tag = fmt.Sprintf("branch-%s-%d-%s", r.SandboxID, w.start.Unix(), hex.EncodeToString(random))
	}
	return sandbox.StoreError(snapshot.CheckTag(r.Tag))
}

// reserve takes the tag. Forks from it wait from now on.
func (w *branchOp) reserve() (err error) {
	m := w.src.Files.Manifest
	info := sandbox.SnapshotInfo{Tag: w.req.Tag, Owner: w.req.Owner, CreatedAt: w.start, Shape: m.Shape, ParentTag: w.base,
		BranchedFrom: w.req.SandboxID, Labels: w.req.Labels}
	if m.Image != nil {
		info.Image, info.ImageDigest = m.Image.Name, m.Image.Digest
	}
	if w.cold {
		w.draft, err = w.e.catalog.Scratch(w.req.Tag)
	} else {
		w.draft, err = w.e.catalog.Begin(info, true)
	}
	if err != nil {
		return err
	}
	w.undo.Push(w.draft.End)
	failpoint.Here(failpoint.BranchReserved)
	return nil
}

// capture captures the sandbox. It returns once the sandbox runs again.
func (w *branchOp) capture(ctx context.Context) (err error) {
	c := vmm.CaptureConfig{Live: w.req.Mode != sandbox.BranchDiff, Force: w.req.Force, Max: w.req.MaxPause,
		Stay: w.stay, Cut: w.cut}
	for _, to := range []**os.File{&w.memory, &w.index, &w.state} {
		f, err := w.draft.Layers().Scratch()
		if err != nil {
			return err
		}
		w.undo.Push(func() { f.Close() })
		*to = f
	}
	c.Memory, c.Index, c.State = w.memory, w.index, w.state
	if w.digest, err = w.e.oracleFile(w.draft.Draft, &w.undo); err != nil {
		return err
	}
	c.Digest = w.digest
	next, err := w.newOverlays()
	if err != nil {
		return err
	}
	defer closeFiles(next)
	c.Disks = next
	limit := w.e.cfg.BranchTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "capture timed out after %s", limit))
	defer cancel()
	failpoint.Here(failpoint.BranchFiles)
	began := w.e.cfg.Now()
	w.took, err = w.m.Proc.Capture(ctx, c)
	w.length = w.e.cfg.Now().Sub(began)
	w.captured = w.e.cfg.Now().Sub(w.start)
	failpoint.Here(failpoint.BranchCaptured)
	w.afterCapture(err)
	if err != nil {
		return err
	}
	w.known = w.knownNames(ctx)
	failpoint.Here(failpoint.BranchRunning)
	w.e.cfg.Observer.Observe(sandbox.OpBranch, w.took.Pause, nil)
	return nil
}

// writeLimit returns a context that bounds the work after the capture.
func (w *branchOp) writeLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := w.e.cfg.BranchTimeout
	if w.record {
		limit += 2 * (w.e.cfg.RestoreTimeout + w.e.cfg.IdentityTimeout)
	}
	return context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "writing the capture timed out after %s", limit))
}

// write writes and commits the snapshot.
func (w *branchOp) write(ctx context.Context) (*snapshot.Manifest, error) {
	if err := w.m.Proc.Captured(ctx); err != nil {
		return nil, err
	}
	if err := w.keepState(); err != nil {
		return nil, err
	}
	w.trace.mark("write")
	failpoint.Here(failpoint.BranchWritten)
	m, err := w.manifest(ctx)
	if err != nil {
		return nil, err
	}
	return m, w.draft.Commit(m)
}

// finish completes the snapshot and rebases the sandbox's disks onto it.
func (w *branchOp) finish(ctx context.Context) error {
	wctx, cancel := w.writeLimit(ctx)
	defer cancel()
	m, err := w.write(wctx)
	if err != nil {
		return err
	}
	if err := w.takeOver(wctx); err != nil { // the snapshot is complete all the same
		w.e.cfg.Logger.Warn("put a branched disk on its layers", "sandbox", w.req.SandboxID, "err", err)
	}
	if err := w.e.checkCaptured(w.draft, w.digest); err != nil {
		return err
	}
	w.trace.mark("commit")
	failpoint.Here(failpoint.BranchDone)
	if !w.req.Transient { // a transient snapshot is deleted before it would be verified
		w.e.catalog.HashLater(w.req.Tag)
	}
	w.e.pools.Touch(w.req.Tag, m.Shape)
	w.e.cfg.Logger.Info("branched", "sandbox", w.req.SandboxID, "tag", w.req.Tag, "mode", w.req.Mode,
		"pause", w.took.Pause, "rounds", w.took.Rounds, "bytes", w.took.Bytes,
		"paused_bytes", w.took.PausedBytes, "capture", w.length)
	w.tell()
	return nil
}

// finishAlone finishes a branch after its caller has returned. If it fails, the snapshot stays
// listed as failed.
func (w *branchOp) finishAlone() {
	defer w.undo.Run()
	err := w.finish(w.e.root)
	if err != nil {
		err = w.explain(w.e.root, err)
		w.e.cfg.Logger.Error("branch failed after the sandbox ran again", "sandbox", w.req.SandboxID,
			"tag", w.req.Tag, "err", err)
		w.draft.Fail(err)
	}
	w.leaveReceipt(err)
}

// manifest describes the new snapshot: the parent's image and the captured layers over it.
func (w *branchOp) manifest(ctx context.Context) (*snapshot.Manifest, error) {
	from := w.src.Files.Manifest
	m := &snapshot.Manifest{
		Owner:         w.req.Owner,
		CreatedUnixMS: w.start.UnixMilli(), Image: from.Image, Shape: from.Shape, Cmdline: from.Cmdline,
		State: snapshot.State{File: snapshot.StateFile}, Languages: from.Languages, Agent: w.agent,
		Branch: &snapshot.Branch{
			Sandbox: w.req.SandboxID, Mode: string(w.req.Mode), Mechanism: w.took.Mechanism,
			PauseUS: w.took.Pause.Microseconds(),
			Rounds:  w.took.Rounds, Bytes: w.took.Bytes, PausedBytes: w.took.PausedBytes, Transient: w.req.Transient,
		},
		Steps: []snapshot.Step{{Name: sandbox.StepCapture, TookMS: w.length.Milliseconds(), Bytes: w.took.Bytes}},
	}
	m.Network = inherited(*either(w.req.Network, &w.network))
	m.PublicPorts = w.b.Info().PublicPorts
	m.Secrets = sandbox.SecretsIn(w.e.cfg.Secrets, w.b.Info().Secrets)
	m.NetworkFacts = w.known
	describeCPU(m, w.draft.Draft)
	if w.req.Mode != sandbox.BranchFull {
		m.Descend(from, w.src.Files.ContentHash)
	}
	memory, err := w.layMemory(ctx)
	if err != nil {
		return nil, fmt.Errorf("write memory: %w", err)
	}
	m.Memory = memory
	if err := w.layDisks(ctx, w.m.Disks.List(), w.req.Mode == sandbox.BranchFull); err != nil {
		return nil, err
	}
	if err := w.describeDisks(ctx, m); err != nil {
		return nil, err
	}
	return m, w.keepWorkingSets(ctx, m)
}

func (w *branchOp) result() sandbox.BranchResult {
	return sandbox.BranchResult{
		Tag: w.req.Tag, Pause: w.took.Pause, Mechanism: w.took.Mechanism, Rounds: w.took.Rounds,
		Bytes: w.took.Bytes, PausedBytes: w.took.PausedBytes, Total: w.e.cfg.Now().Sub(w.start),
	}
}

// sinceResume returns how long the sandbox has been running again. Its VMM and this process use the
// same clock.
func (w *branchOp) sinceResume() time.Duration {
	return time.Duration(startgate.Now() - w.took.RunningAt)
}

// explain converts an error for the caller.
func (w *branchOp) explain(ctx context.Context, err error) error {
	switch {
	case context.Cause(ctx) != nil:
		return sandbox.Ended(ctx, err)
	case errors.Is(err, vmm.ErrNoRoom): // it stalled for lack of disk space meanwhile
		return sandbox.Errorf(sandbox.ErrNoSpace, sandbox.ReasonDiskNoRoom, "%w", err)
	case errors.Is(err, vmm.ErrLost):
		return vmproc.LostWrites("%w", err)
	case sandbox.IsNoSpace(err):
		return sandbox.NoSpace(err)
	case errors.Is(err, vmm.ErrPause):
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonPauseTooLong, "%w", err)
	case errors.Is(err, vmm.ErrGone), errors.Is(err, vmproc.ErrNoVM):
		return sandbox.Errorf(sandbox.ErrGuestGone, "", "%w", err)
	case w.m != nil && !w.m.Alive(): // its files went with it
		return sandbox.Errorf(sandbox.ErrGuestGone, "", "the sandbox ended during the branch: %w", err)
	}
	return sandbox.StoreError(err)
}
