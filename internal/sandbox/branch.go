package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/failpoint"
	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/startgate"
	"github.com/forkd/forkd/internal/undo"
	"github.com/forkd/forkd/internal/vmmctl"
)

// StepCapture is a branch's step in its snapshot's account: all until the sandbox runs again.
const StepCapture = "capture"

// branching is one Branch under way. Its snapshot is the sandbox's own pages and
// blocks, a layer each, over the layers of the snapshot that it was forked from.
type branching struct {
	e   *Engine
	req BranchRequest
	b   *box
	m   *machine
	src *forkSource // what the sandbox was forked from, or rolled back to
	// base is the tag of src.
	base  string
	trace trace

	draft  *snapshot.Draft
	memory *os.File    // what the VMM wrote of it, at its offsets; a file without a name
	index  *os.File    // which of it
	disks  []diskStack // in the order of the sandbox's writable disks
	took   vmmctl.CaptureResult
	start  time.Time
	undo   undo.Stack
	length time.Duration // of the capture
	// owns are the own files that this branch reads, by their path.
	owns map[string]*os.File
	// touched are the own files that this branch made or let go of, see removeOrphans.
	touched []string
}

// Branch takes a snapshot of a running sandbox, which goes on whatever happens.
// Nothing remains of one that failed.
func (e *Engine) Branch(ctx context.Context, req BranchRequest) (_ BranchResult, err error) {
	caller := ctx
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return BranchResult{}, err
	}
	w := &branching{e: e, req: req, start: e.cfg.Now()}
	w.trace = e.newTrace(w.start)
	w.undo.Push(done)
	defer func() {
		if w != nil {
			w.undo.Run()
		}
	}()
	if err := w.prepare(ctx); err != nil {
		return BranchResult{}, err
	}
	w.trace.mark("turn")
	err = w.capture(ctx)
	w.trace.mark("capture")
	if err != nil {
		err = fmt.Errorf("branch %s: %w", req.SandboxID, w.explain(ctx, err))
		w.leaveReceipt(err)
		return BranchResult{}, err
	}
	if req.NoWait {
		r := w.result()
		r.Snapshot, _ = e.SnapshotInfo(ctx, w.req.Tag)
		r.AfterResume = w.sinceResume()
		later := w
		w = nil // the undo stack is the goroutine's now
		go later.finishAlone()
		return r, nil
	}
	if err := w.finish(ctx); err != nil {
		err = fmt.Errorf("branch %s: %w", req.SandboxID, w.explain(ctx, err))
		w.leaveReceipt(err)
		return BranchResult{}, err
	}
	w.leaveReceipt(nil)
	r := w.result()
	w.undo.Run() // the tag can be forked from now on
	if req.N > 0 {
		r.Fork = e.forkBranch(caller, w.req)
	}
	r.Snapshot, err = e.SnapshotInfo(context.WithoutCancel(ctx), w.req.Tag)
	r.AfterResume = w.sinceResume()
	return r, err
}

// forkBranch forks the children that a branch was asked for. The snapshot is
// there whatever becomes of them, so that an error is theirs.
func (e *Engine) forkBranch(ctx context.Context, req BranchRequest) *ForkResult {
	r, err := e.Fork(ctx, ForkRequest{Tag: req.Tag, N: req.N})
	if err != nil {
		for i := range req.N {
			r.Children = append(r.Children, Child{Index: i + 1, Err: err})
		}
	}
	return &r
}

// prepare checks the request and takes what the branch needs: its turn, the
// sandbox, the snapshot below and the new tag.
func (w *branching) prepare(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	select {
	case w.e.branches <- struct{}{}:
		w.undo.Push(func() { <-w.e.branches })
	default:
		return problem(ErrBusy, "try again when one of them has ended", "%d branches are under way already", cap(w.e.branches))
	}
	b, _, err := w.e.running(w.req.SandboxID)
	if err != nil {
		return err
	}
	leave, err := b.turn(ctx)
	if err != nil {
		return err
	}
	w.undo.Push(leave)
	if w.b, w.m, err = w.e.running(w.req.SandboxID); err != nil { // as it is now that it is our turn
		return err
	}
	w.undo.Push(w.removeOrphans)
	base, hash := w.b.info.Base()
	if w.src, err = w.e.openForkSource(ctx, base); err != nil {
		return fmt.Errorf("branch %s: the snapshot that it was forked from: %w", w.req.SandboxID, err)
	}
	w.undo.Push(w.src.close)
	w.base = base
	if hash != w.src.files.ContentHash {
		return problem(ErrConflict, "", "sandbox %s was forked from another snapshot %s, which is deleted", w.req.SandboxID, base)
	}
	if err := w.reserve(); err != nil {
		return err
	}
	return w.settle(ctx)
}

func (w *branching) check() error {
	r := &w.req
	switch r.Mode {
	case "":
		r.Mode = BranchLive
	case BranchLive, BranchDiff, BranchFull:
	default:
		return problem(ErrInvalid, "", "mode is %q, want live, diff or full", clip(string(r.Mode)))
	}
	switch {
	case r.N < 0 || r.N > MaxFork:
		return problem(ErrInvalid, "", "n is %d, want 0 to %d", r.N, MaxFork)
	case r.N > 0 && r.NoWait:
		return problem(ErrInvalid, "fork from the tag in a call of its own: it waits until the snapshot is ready", "children were asked for without waiting")
	case r.MaxPause < 0:
		return problem(ErrInvalid, "", "the pause's limit is %s", r.MaxPause)
	}
	if r.Tag == "" {
		random, err := w.e.random(3)
		if err != nil {
			return err
		}
		r.Tag = fmt.Sprintf("branch-%s-%d-%s", r.SandboxID, w.start.Unix(), hex.EncodeToString(random))
	}
	return storeError(snapshot.CheckTag(r.Tag))
}

// reserve takes the tag; forks from it wait from now on.
func (w *branching) reserve() (err error) {
	if w.draft, err = w.e.store.Create(w.req.Tag); err != nil {
		return storeError(err)
	}
	w.undo.Push(w.draft.Discard)
	m := w.src.files.Manifest
	info := SnapshotInfo{
		Tag: w.req.Tag, Dir: w.e.store.Dir(w.req.Tag), CreatedAt: w.start, Status: SnapshotWriting, Shape: m.Shape,
		ParentTag: w.base, BranchedFrom: w.req.SandboxID,
	}
	if m.Image != nil {
		info.Image, info.ImageDigest = m.Image.Name, m.Image.Digest
	}
	w.e.mu.Lock()
	delete(w.e.failed, w.req.Tag)
	w.e.creating[w.req.Tag] = info
	written := make(chan struct{})
	w.e.writing[w.req.Tag] = written
	w.e.mu.Unlock()
	w.undo.Push(func() {
		w.e.mu.Lock()
		delete(w.e.creating, w.req.Tag)
		delete(w.e.writing, w.req.Tag)
		w.e.mu.Unlock()
		close(written)
	})
	failpoint.Here(failpoint.BranchReserved)
	return nil
}

// capture returns when the sandbox runs again.
func (w *branching) capture(ctx context.Context) error {
	c := vmmctl.CaptureConfig{Live: w.req.Mode != BranchDiff, Max: w.req.MaxPause}
	for _, to := range []**os.File{&w.memory, &w.index} {
		f, err := w.draft.Layers().Scratch()
		if err != nil {
			return err
		}
		w.undo.Push(func() { f.Close() })
		*to = f
	}
	state, err := w.draft.File(snapshot.StateFile)
	if err != nil {
		return err
	}
	c.Memory, c.Index, c.State = w.memory, w.index, state
	next, err := w.nextOwn()
	if err != nil {
		return err
	}
	defer closeFiles(next)
	c.Disks = next
	limit := w.e.cfg.BranchTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, problem(ErrTimeout, "", "no end of the capture within %s", limit))
	defer cancel()
	failpoint.Here(failpoint.BranchFiles)
	began := w.e.cfg.Now()
	w.took, err = w.m.proc.Capture(ctx, c)
	w.length = w.e.cfg.Now().Sub(began)
	failpoint.Here(failpoint.BranchCaptured)
	w.wentOn(err)
	if err != nil {
		return err
	}
	failpoint.Here(failpoint.BranchRunning)
	w.e.cfg.Observer.Observe(OpBranch, time.Duration(w.took.PauseNanos), nil)
	return nil
}

// finish makes the snapshot whole.
func (w *branching) finish(ctx context.Context) error {
	limit := w.e.cfg.BranchTimeout
	wctx, cancel := context.WithTimeoutCause(ctx, limit, problem(ErrTimeout, "", "the capture was not written within %s", limit))
	defer cancel()
	if err := w.m.proc.Captured(wctx); err != nil {
		return err
	}
	w.trace.mark("write")
	failpoint.Here(failpoint.BranchWritten)
	m, err := w.manifest(wctx)
	if err != nil {
		return err
	}
	if err := w.draft.Commit(m); err != nil {
		return err
	}
	if err := w.takeOver(wctx); err != nil { // the snapshot is whole all the same
		w.e.cfg.Logger.Warn("put a branched disk on its layers", "sandbox", w.req.SandboxID, "err", err)
	}
	w.trace.mark("commit")
	failpoint.Here(failpoint.BranchDone)
	if !w.req.transient { // it will be gone before it is ever verified
		w.e.sealLater(w.req.Tag)
	}
	w.e.pools.touch(w.req.Tag, m.Shape)
	w.e.cfg.Logger.Info("branched", "sandbox", w.req.SandboxID, "tag", w.req.Tag, "mode", w.req.Mode, "pause", time.Duration(w.took.PauseNanos),
		"rounds", w.took.Rounds, "bytes", w.took.Bytes, "paused_bytes", w.took.PausedBytes, "capture", w.length)
	return nil
}

// finishAlone ends a branch that nobody waits for. One that fails stays listed.
func (w *branching) finishAlone() {
	defer w.undo.Run()
	err := w.finish(w.e.root)
	if err != nil {
		err = w.explain(w.e.root, err)
		w.e.cfg.Logger.Error("branch failed after the sandbox ran again", "sandbox", w.req.SandboxID, "tag", w.req.Tag, "err", err)
		w.e.listFailed(w.req.Tag, err) // before its tag is given back, and who waits for it goes on
	}
	w.leaveReceipt(err)
}

// manifest describes the new snapshot: the parent's image with what was captured over it.
func (w *branching) manifest(ctx context.Context) (*snapshot.Manifest, error) {
	from := w.src.files.Manifest
	m := &snapshot.Manifest{
		CreatedUnixMS: w.start.UnixMilli(), Image: from.Image, Shape: from.Shape, Cmdline: from.Cmdline,
		State: snapshot.State{File: snapshot.StateFile}, CPUFeatures: from.CPUFeatures, Languages: from.Languages, Agent: from.Agent,
		Branch: &snapshot.Branch{
			Sandbox: w.req.SandboxID, Mode: string(w.req.Mode), Mechanism: w.took.Mechanism, PauseUS: w.took.PauseNanos / 1000,
			Rounds: w.took.Rounds, Bytes: w.took.Bytes, PausedBytes: w.took.PausedBytes, Transient: w.req.transient,
		},
		Steps: []snapshot.Step{{Name: StepCapture, TookMS: w.length.Milliseconds(), Bytes: w.took.Bytes}},
	}
	if w.req.Mode != BranchFull {
		m.Parent = &snapshot.Parent{Tag: w.base, ContentHash: w.src.files.ContentHash}
	}
	memory, err := w.layMemory(ctx)
	if err != nil {
		return nil, fmt.Errorf("write memory: %w", err)
	}
	m.Memory = memory
	if err := w.layDisks(ctx, w.req.Mode == BranchFull); err != nil {
		return nil, err
	}
	if err := w.adoptHot(); err != nil {
		return nil, err
	}
	return m, w.describeDisks(m)
}

func (w *branching) result() BranchResult {
	return BranchResult{
		Tag: w.req.Tag, Pause: time.Duration(w.took.PauseNanos), Mechanism: w.took.Mechanism, Rounds: w.took.Rounds,
		Bytes: w.took.Bytes, PausedBytes: w.took.PausedBytes, Total: w.e.cfg.Now().Sub(w.start),
	}
}

// sinceResume is how long the sandbox has been running again: its VMM's clock is
// this process's.
func (w *branching) sinceResume() time.Duration {
	return time.Duration(startgate.Now() - w.took.RunningAt)
}

// explain turns an error into what the caller should know.
func (w *branching) explain(ctx context.Context, err error) error {
	switch {
	case context.Cause(ctx) != nil:
		return ended(ctx, err)
	case isNoSpace(err), strings.Contains(err.Error(), "no space left on device"): // the VMM's errors come as text
		return noSpace(err)
	case strings.Contains(err.Error(), vmmctl.ErrPause.Error()):
		return problem(ErrConflict, "allow a longer pause, or branch when the sandbox writes less", "%w", err)
	case errors.Is(err, vmmctl.ErrGone), errors.Is(err, errNoVM):
		return problem(ErrGuestGone, "", "%w", err)
	case w.m != nil && !alive(w.m): // its files went with it
		return problem(ErrGuestGone, "", "the sandbox has ended meanwhile: %w", err)
	}
	return storeError(err)
}
