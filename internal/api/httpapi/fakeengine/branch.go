package fakeengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Pauses of the fake by mode. A branch writes 3 MiB, or in mode full the whole memory.
const (
	livePause = 1500 * time.Microsecond
	diffPause = 8 * time.Millisecond
	diffBytes = 3 << 20
	lastBytes = 64 << 10 // of a live branch, copied in the pause
)

// Branch makes a snapshot of a running sandbox. With NoWait the snapshot is being written until
// Finish is called. At most BranchLimit such branches may be in progress.
func (e *Engine) Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error) {
	if e.Drain.On() {
		return sandbox.BranchResult{}, drain.Refusal()
	}
	res, err := e.capture(req)
	if err == nil && ctx.Err() != nil {
		e.mu.Lock()
		delete(e.disks, res.Tag)
		delete(e.snapshots, res.Tag)
		e.mu.Unlock()
		err = context.Cause(ctx)
	}
	if err != nil {
		return sandbox.BranchResult{}, fmt.Errorf("branch %s: %w", req.SandboxID, err)
	}
	recordSteps(ctx, "turn", "capture", "write", "commit")
	if req.N == 0 {
		return res, nil
	}
	req.Tag, req.Owner, req.Labels = res.Tag, res.Snapshot.Owner, res.Snapshot.Labels
	forked, err := e.Fork(ctx, req.Children())
	if err != nil {
		return sandbox.BranchResult{}, err
	}
	res.Fork = &forked
	res.Snapshot, err = e.SnapshotInfo(ctx, res.Tag)
	return res, err
}

func (e *Engine) capture(req sandbox.BranchRequest) (sandbox.BranchResult, error) {
	if err := checkBranch(req); err != nil {
		return sandbox.BranchResult{}, err
	}
	b, err := e.live(req.SandboxID)
	if err != nil {
		return sandbox.BranchResult{}, err
	}
	if _, err := e.networkOf(req.Network, req.HostPorts, sandbox.SnapshotInfo{}); err != nil {
		return sandbox.BranchResult{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	res, err := figures(req)
	if err != nil {
		return sandbox.BranchResult{}, err
	}
	if err := sandbox.CheckLabels(labels.Merge(labels.Inherited(b.info.Labels), req.Labels)); err != nil {
		return sandbox.BranchResult{}, err
	}
	if len(e.writing) >= e.BranchLimit {
		return sandbox.BranchResult{}, fmt.Errorf("%d branches are under way: %w", len(e.writing), sandbox.ErrBusy)
	}
	if res.Tag = req.Tag; res.Tag == "" {
		e.branches++
		res.Tag = fmt.Sprintf("branch-%s-%d", req.SandboxID, e.branches)
	}
	if _, taken := e.snapshots[res.Tag]; taken {
		return sandbox.BranchResult{}, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonTagTaken, "tag %s exists", res.Tag)
	}
	e.snapshots[res.Tag] = e.branchedLocked(b, req, res)
	base, _ := b.info.Base()
	rec := branchReceipt(req, res, base)
	rec.Owner, rec.Secrets = e.snapshots[res.Tag].Owner, receiptSecrets(b.info.Secrets)
	e.recordLocked(rec, e.Now)
	if req.NoWait {
		e.writing[res.Tag] = make(chan struct{})
	}
	res.Snapshot, err = e.snapshotLocked(res.Tag)
	return res, err
}

// checkBranch makes the checks that the engine makes before it reads the sandbox.
func checkBranch(req sandbox.BranchRequest) error {
	if req.N < 0 || req.N > sandbox.MaxFork || req.N > 0 && req.NoWait || req.MaxPause < 0 {
		return fmt.Errorf("%d children, a pause of %s: %w", req.N, req.MaxPause, sandbox.ErrInvalid)
	}
	if err := errors.Join(sandbox.CheckEnv(req.Env), sandbox.CheckLabels(req.Labels)); err != nil {
		return err
	}
	if _, err := req.Life.Set(time.Now()); err != nil {
		return err
	}
	if !slices.Contains([]sandbox.BranchMode{"", sandbox.BranchLive, sandbox.BranchDiff, sandbox.BranchFull}, req.Mode) {
		return fmt.Errorf("mode %q: %w", req.Mode, sandbox.ErrInvalid)
	}
	if req.Tag == "" {
		return nil
	}
	return sandbox.StoreError(snapshot.CheckTag(req.Tag))
}

// figures returns the made-up figures of a branch by mode.
func figures(req sandbox.BranchRequest) (sandbox.BranchResult, error) {
	res := sandbox.BranchResult{Mechanism: "wp-async", Rounds: 2, Pause: livePause, Bytes: diffBytes,
		PausedBytes: lastBytes, Total: 40 * time.Millisecond, AfterResume: 3 * time.Millisecond}
	switch req.Mode {
	case sandbox.BranchDiff:
		res.Mechanism, res.Rounds, res.Pause, res.PausedBytes = "none", 0, diffPause, diffBytes
	case sandbox.BranchFull:
		res.Bytes = 90 << 20
	}
	if req.MaxPause > 0 && res.Pause > req.MaxPause {
		return res, fmt.Errorf("the pause would take %s, the limit is %s: %w", res.Pause, req.MaxPause, sandbox.ErrConflict)
	}
	return res, nil
}

// branchedLocked returns the snapshot of a branch.
func (e *Engine) branchedLocked(b *entry, req sandbox.BranchRequest, res sandbox.BranchResult) sandbox.SnapshotInfo {
	if b.guest != nil {
		e.disks[res.Tag] = b.guest.disk.clone()
	}
	base, hash := b.info.Base()
	source := e.snapshots[base] // empty if it was deleted
	info := sandbox.SnapshotInfo{
		Tag: res.Tag, Owner: cmp.Or(req.Owner, b.info.Owner),
		Dir: "/var/lib/forkd/snapshots/" + res.Tag, CreatedAt: e.Now, Status: sandbox.SnapshotReady,
		Image: source.Image, ImageDigest: source.ImageDigest, Kernel: source.Kernel, Languages: source.Languages,
		Shape: b.info.Shape, MemoryLogicalBytes: 256 << 20, MemoryPhysicalBytes: 90<<20 + res.Bytes,
		MemoryOwnBytes: res.Bytes, VMStateBytes: 20 << 10,
		DigestsReady: true, ContentHash: e.hashLocked("b0a7"), BranchedFrom: req.SandboxID, Pause: res.Pause,
		CapturedBytes: res.Bytes, Labels: labels.Merge(labels.Inherited(b.info.Labels), req.Labels),
	}
	if info.Network = inherited(&b.info.Network.Effective); req.Network != nil {
		info.Network = inherited(req.Network)
	}
	info.PrivatePorts = b.info.PrivatePorts()
	info.Secrets = sandbox.InheritSecrets(sandbox.SecretsIn(e.Secrets, b.info.Secrets), nil)
	info.Volumes = clonesOf(b.info.Volumes)
	if req.Mode != sandbox.BranchFull {
		info.ParentTag, info.ParentContentHash = base, hash
	}
	if req.NoWait {
		info.Status = sandbox.SnapshotWriting
	}
	return info
}

// Finish completes the writing of a branch with NoWait.
func (e *Engine) Finish(tag string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	info := e.snapshots[tag]
	info.Status = sandbox.SnapshotReady
	e.snapshots[tag] = info
	close(e.writing[tag])
	delete(e.writing, tag)
}

// FinishAll calls Finish for all snapshots being written.
func (e *Engine) FinishAll() {
	e.mu.Lock()
	var tags []string
	for tag := range e.writing {
		tags = append(tags, tag)
	}
	e.mu.Unlock()
	for _, tag := range tags {
		e.Finish(tag)
	}
}

// written waits until a snapshot is no longer being written.
func (e *Engine) written(ctx context.Context, tag string) error {
	e.mu.Lock()
	ready := e.writing[tag]
	e.mu.Unlock()
	if ready == nil {
		return nil
	}
	e.Waiting.Add(1)
	defer e.Waiting.Add(-1)
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
