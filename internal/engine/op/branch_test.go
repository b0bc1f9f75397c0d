package op_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// forked returns an engine with one running child of the snapshot "a".
func forked(t *testing.T) (*enginefake.Host, *engine.Engine, sandbox.Info) {
	t.Helper()
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	return h, e, h.Fork(e, "a", 1)[0]
}

func TestBranchOfABranchOfABranch(t *testing.T) {
	h, e, sb := forked(t)
	for i, tag := range []string{"b", "c", "d"} {
		r, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: tag, N: 2})
		if err != nil {
			t.Fatal(err)
		}
		if r.Tag != tag || r.Pause != 2*time.Millisecond || r.Mechanism != "wp-async" || r.Bytes != 4096 || r.Fork == nil || len(r.Fork.Children) != 2 {
			t.Errorf("%+v", r)
		}
		s := r.Snapshot
		if s.Status != sandbox.SnapshotReady || s.ChainDepth() != i+1 || s.BranchedFrom != sb.ID || s.Pause != 2*time.Millisecond {
			t.Errorf("snapshot: %+v", s)
		}
		sb = r.Fork.Children[0].Info
	}
	// Each is complete on disk.
	for _, tag := range []string{"a", "b", "c"} {
		if err := e.DeleteSnapshot(t.Context(), tag, sandbox.DeleteOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	h.Fork(e, "d", 3)
	h.KillAll()
}

func TestAFullBranchDependsOnNothing(t *testing.T) {
	h, e, sb := forked(t)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b", Mode: sandbox.BranchFull}); err != nil {
		t.Fatal(err)
	}
	if m := h.Manifest("b"); len(m.Memory.Layers) != 1 || m.Memory.Own != 1 || m.Parent != nil {
		t.Errorf("memory is %+v over %+v, want one layer over nothing", m.Memory, m.Parent)
	}
}

func TestABranchWithoutWaiting(t *testing.T) {
	h, e, sb := forked(t)
	h.Fault("captured-slow", 1)
	r, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b", NoWait: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.AfterResume <= 0 || r.AfterResume > time.Minute {
		t.Errorf("it returned %s after the resume", r.AfterResume)
	}
	if r.Snapshot.Status != sandbox.SnapshotWriting {
		t.Errorf("it is %s already", r.Snapshot.Status)
	}
	h.Fork(e, "b", 2) // waits
	h.Fault("captured-fail", 1)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "c", NoWait: true}); err != nil {
		t.Fatal(err)
	}
	_, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "c", N: 1}) // waits
	enginefake.WantError(t, err, sandbox.ErrConflict, "snapshot c could not be written", "no space left on device")
	listed := func() (found sandbox.SnapshotInfo) {
		t.Helper()
		list, err := e.ListSnapshots(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, s := range list {
			if s.Tag == "c" {
				found = s
			}
		}
		return found
	}
	info, err := e.SnapshotInfo(t.Context(), "c")
	if s := listed(); err != nil || s.Status != sandbox.SnapshotFailed || !strings.Contains(s.Warning, "no space left") || s.BranchedFrom != sb.ID || info.Warning != s.Warning {
		t.Errorf("listed as %+v, described as %+v, %v", s, info, err)
	}
	// Another try replaces it.
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "c"}); err != nil || listed().Status != sandbox.SnapshotReady {
		t.Errorf("the second try is %s, %v", listed().Status, err)
	}
	// A deletion removes it.
	h.Fault("captured-fail", 1)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "x", NoWait: true}); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failed snapshot", func() bool {
		s, err := e.SnapshotInfo(t.Context(), "x")
		return err == nil && s.Status == sandbox.SnapshotFailed
	})
	if err := e.DeleteSnapshot(t.Context(), "x", sandbox.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "x", sandbox.DeleteOptions{}), sandbox.ErrNotFound)
	_, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "x", N: 1})
	enginefake.WantError(t, err, sandbox.ErrNotFound, "x")
}

// On every failure the sandbox keeps running and no incomplete snapshot remains.
func TestABranchThatFails(t *testing.T) {
	h, e, sb := forked(t)
	before := h.Stored()
	branch := func(r sandbox.BranchRequest) error {
		r.SandboxID, r.Tag = sb.ID, "b"
		_, err := e.Branch(t.Context(), r)
		return err
	}
	enginefake.WantError(t, branch(sandbox.BranchRequest{MaxPause: time.Nanosecond}), sandbox.ErrConflict, "pause would be too long")
	h.Fault("capture-fail", 1)
	if err := branch(sandbox.BranchRequest{}); err == nil {
		t.Error("a failed capture was taken for a good one")
	}
	h.Fault("captured-fail", 1)
	enginefake.WantError(t, branch(sandbox.BranchRequest{}), sandbox.ErrNoSpace, "no space left")
	if now := h.Stored(); now != before {
		t.Errorf("stored are now %s, before it was %s", now, before)
	}
	own, err := os.ReadDir(filepath.Join(h.Cfg.StoreDir, "own"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("overlay files: %d", len(own))
	h.Eval(e, sb.ID, "entropy")
	if err := branch(sandbox.BranchRequest{}); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

func TestBranchRequestsThatAreRefused(t *testing.T) {
	_, e, sb := forked(t)
	for _, c := range []struct {
		req  sandbox.BranchRequest
		kind error
		text string
	}{
		{sandbox.BranchRequest{SandboxID: "sb-none"}, sandbox.ErrNotFound, "sb-none"},
		{sandbox.BranchRequest{SandboxID: sb.ID, Mode: "half"}, sandbox.ErrInvalid, "live, diff or full"},
		{sandbox.BranchRequest{SandboxID: sb.ID, N: sandbox.MaxFork + 1}, sandbox.ErrInvalid, "1001"},
		{sandbox.BranchRequest{SandboxID: sb.ID, N: 1, NoWait: true}, sandbox.ErrInvalid, "without waiting"},
		{sandbox.BranchRequest{SandboxID: sb.ID, MaxPause: -1}, sandbox.ErrInvalid, "limit"},
		{sandbox.BranchRequest{SandboxID: sb.ID, Tag: "../x"}, sandbox.ErrInvalid, "x"},
		{sandbox.BranchRequest{SandboxID: sb.ID, Tag: "a"}, sandbox.ErrConflict, "a"},
	} {
		_, err := e.Branch(t.Context(), c.req)
		enginefake.WantError(t, err, c.kind, c.text)
	}
}

func TestBranchesAtOnceAreBounded(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.Branches, h.Cfg.BranchTimeout = 1, 300*time.Millisecond
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := h.Fork(e, "a", 2)
	h.Fault("capture-hang", 1)
	hung := make(chan error, 1)
	go func() { hung <- h.Branch(e, sbs[0].ID, "b") }()
	enginefake.Eventually(t, "branch under way", h.UsedUp("capture-hang"))
	enginefake.WantError(t, h.Branch(e, sbs[1].ID, "c"), sandbox.ErrBusy, "under way")
	enginefake.WantError(t, <-hung, sandbox.ErrTimeout)
}

func TestTwoBranchesOfOneSandboxTakeTurns(t *testing.T) {
	_, e, sb := forked(t)
	errs := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := e.Branch(context.Background(), sandbox.BranchRequest{SandboxID: sb.ID})
			errs <- err
		}()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	list, err := e.ListSnapshots(t.Context())
	if err != nil || len(list) != 4 {
		t.Errorf("%d snapshots, %v", len(list), err)
	}
}

// The tag of a deleted parent may be reused for another snapshot, which is not the base of the
// sandbox's memory.
func TestBranchKnowsItsOwnParent(t *testing.T) {
	h, e, sb := forked(t)
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // elapses: the new one is of another moment
	h.Snapshot(e, "a")
	r, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID})
	if err != nil {
		t.Fatal(err)
	}
	if r.Snapshot.ParentContentHash != sb.SnapshotHash || r.Snapshot.ParentTag != "" || r.Snapshot.ChainDepth() != 0 {
		t.Errorf("its parent is %q %s, ancestors %q; the sandbox came from %s", r.Snapshot.ParentTag, r.Snapshot.ParentContentHash, r.Snapshot.Ancestors, sb.SnapshotHash)
	}
}
