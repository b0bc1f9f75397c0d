package op_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// retiredFolders returns the number of folders of retired snapshots.
func retiredFolders(h *enginefake.Host) int {
	found, err := filepath.Glob(filepath.Join(h.Cfg.StoreDir, "snapshots", ".retired-*"))
	if err != nil {
		h.T.Fatal(err)
	}
	return len(found)
}

func deleteSnapshots(h *enginefake.Host, e *engine.Engine, force bool, tags ...string) {
	h.T.Helper()
	for _, tag := range tags {
		if err := e.DeleteSnapshot(h.T.Context(), tag, sandbox.DeleteOptions{Force: force}); err != nil {
			h.T.Fatal(err)
		}
	}
}

// A sandbox is branched in every mode, and its branches are forked, after its snapshot was deleted,
// also under the next daemon, and after the tag was reused. No files are left when all have ended.
func TestASandboxOutlivesItsSnapshotsName(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	deleteSnapshots(h, e, true, "d")
	var made []string
	branchAll := func(when string) {
		t.Helper()
		for _, mode := range []sandbox.BranchMode{sandbox.BranchLive, sandbox.BranchDiff, sandbox.BranchFull} {
			tag := when + "-" + string(mode)
			want := h.ReadOverlay(sb.ID)
			r, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: tag, Mode: mode, N: 1})
			if err != nil {
				t.Fatalf("branch %s: %v", tag, err)
			}
			if err := r.Fork.Children[0].Err; err != nil {
				t.Errorf("fork of %s: %v", tag, err)
			}
			if got := diskOf(h, tag); got != want {
				t.Errorf("%s has %q, the source had %q", tag, got, want)
			}
			made = append(made, tag)
			if s := r.Snapshot; s.ChainDepth() != 0 || when == "reused" && s.ParentTag != "" {
				t.Errorf("%s: parent %q, ancestors %q", tag, s.ParentTag, s.Ancestors)
			}
		}
	}
	branchAll("first")
	h.Close(e)
	e = h.Open()
	branchAll("next")
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "d", Image: "tiny"}, nil); err != nil {
		t.Fatal(err)
	}
	branchAll("reused")
	if s, err := e.SnapshotInfo(t.Context(), "d"); err != nil || len(s.Sandboxes)+len(s.Dependents) != 0 {
		t.Errorf("the new snapshot of the tag: %+v, %v", s, err)
	}
	deleteSnapshots(h, e, false, "d")
	if retiredFolders(h) != 1 {
		t.Errorf("%d snapshots without a tag are kept, want 1", retiredFolders(h))
	}
	if _, err := e.Rollback(t.Context(), sb.ID, "first-live"); err != nil {
		t.Errorf("roll back to a branch of its own: %v", err)
	}
	enginefake.Eventually(t, "removal of what it lay over", func() bool { return retiredFolders(h) == 0 })
	for _, b := range e.List() {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	deleteSnapshots(h, e, false, made...)
	enginefake.Eventually(t, "empty store", func() bool { return len(layerIDs(t, h)) == 0 && len(pinNames(t, h)) == 0 })
}

// When the sandbox ends, by itself or by a kill, or while no daemon runs, its retired snapshot is
// removed.
func TestWhatWasKeptGoesWithTheSandbox(t *testing.T) {
	for name, end := range map[string]func(h *enginefake.Host, e *engine.Engine, id string){
		"kill": func(h *enginefake.Host, e *engine.Engine, id string) {
			if err := e.Kill(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
		"panic": func(h *enginefake.Host, e *engine.Engine, id string) {
			_, _ = e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "panic"})
		},
		"between two daemons": func(h *enginefake.Host, e *engine.Engine, id string) {
			h.Close(e)
			h.KillAll()
			h.Open()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			e := h.Open()
			sb := h.Disky(e, 1)[0]
			deleteSnapshots(h, e, true, "d")
			if retiredFolders(h) != 1 {
				t.Fatal("it is not kept")
			}
			end(h, e, sb.ID)
			enginefake.Eventually(t, "removal", func() bool {
				return retiredFolders(h) == 0 && !slices.ContainsFunc(pinNames(t, h), func(n string) bool { return strings.HasPrefix(n, "retired.") })
			})
		})
	}
}

// A sandbox can be put back to the remaining snapshots of its ancestry, even if snapshots in
// between are gone.
func TestRollbackPastDeletedAncestors(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	last := sb.ID
	for i, tag := range []string{"b1", "b2", "b3"} {
		if err := h.Branch(e, last, tag); err != nil {
			t.Fatal(err)
		}
		last = h.Fork(e, tag, 1)[0].ID
		if s, err := e.SnapshotInfo(t.Context(), tag); err != nil || s.ChainDepth() != i+1 {
			t.Errorf("%s: %+v, %v", tag, s, err)
		}
	}
	deleteSnapshots(h, e, true, "b1", "b2", "b3")
	h.Close(e)
	e = h.Open()
	_, err := e.Rollback(t.Context(), last, "b2")
	enginefake.WantError(t, err, sandbox.ErrNotFound, "valid snapshots: d")
	if _, err := e.Rollback(t.Context(), last, "d"); err != nil {
		t.Fatal(err)
	}
	if info, err := e.Get(last); err != nil || info.RolledBackTo != "d" {
		t.Errorf("got %+v, %v", info, err)
	}
}

// A guest forks itself although its snapshot is deleted.
func TestAGuestForksAfterItsSnapshotsDeletion(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	deleteSnapshots(g.Host, g.E, true, "a")
	child := g.Forked(g.Root.ID, 1)[0]
	g.Forked(child, 1)
	for _, b := range g.E.List() {
		if err := g.E.Kill(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	g.NoneTransient()
	enginefake.Eventually(t, "empty store", func() bool { return len(layerIDs(t, g.Host)) == 0 && retiredFolders(g.Host) == 0 })
}

func TestAncestorsAreBounded(t *testing.T) {
	m := &snapshot.Manifest{Tag: "t0"}
	for i := range 2 * snapshot.MaxAncestors {
		next := &snapshot.Manifest{Tag: fmt.Sprintf("t%d", i+1)}
		next.Descend(m, fmt.Sprintf("h%d", i))
		m = next
	}
	if n := len(m.Ancestors); n != snapshot.MaxAncestors || m.Ancestors[n-1].Tag != fmt.Sprintf("t%d", 2*snapshot.MaxAncestors-2) {
		t.Errorf("%d ancestors, the last is %+v", n, m.Ancestors[n-1])
	}
}
