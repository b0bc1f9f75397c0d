package engine

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// retiredFolders returns the number of folders of retired snapshots.
func (h *host) retiredFolders() int {
	found, err := filepath.Glob(filepath.Join(h.cfg.StoreDir, "snapshots", ".retired-*"))
	if err != nil {
		h.t.Fatal(err)
	}
	return len(found)
}

func (h *host) delete(e *Engine, force bool, tags ...string) {
	h.t.Helper()
	for _, tag := range tags {
		if err := e.DeleteSnapshot(h.t.Context(), tag, sandbox.DeleteOptions{Force: force}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// A sandbox is branched in every mode, and its branches are forked, after its snapshot was deleted,
// also under the next daemon, and after the tag was reused. No files are left when all have ended.
func TestASandboxOutlivesItsSnapshotsName(t *testing.T) {
	h := newHost(t)
	e := h.open()
	sb := h.disky(e, 1)[0]
	h.delete(e, true, "d")
	var made []string
	branchAll := func(when string) {
		t.Helper()
		for _, mode := range []sandbox.BranchMode{sandbox.BranchLive, sandbox.BranchDiff, sandbox.BranchFull} {
			tag := when + "-" + string(mode)
			want := h.readOverlay(e, sb.ID)
			r, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: tag, Mode: mode, N: 1})
			if err != nil {
				t.Fatalf("branch %s: %v", tag, err)
			}
			if err := r.Fork.Children[0].Err; err != nil {
				t.Errorf("fork of %s: %v", tag, err)
			}
			if got := diskOf(t, e, tag); got != want {
				t.Errorf("%s has %q, the source had %q", tag, got, want)
			}
			made = append(made, tag)
			if s := r.Snapshot; s.ChainDepth() != 0 || when == "reused" && s.ParentTag != "" {
				t.Errorf("%s: parent %q, ancestors %q", tag, s.ParentTag, s.Ancestors)
			}
		}
	}
	branchAll("first")
	h.close(e)
	e = h.open()
	branchAll("next")
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "d", Image: "tiny"}, nil); err != nil {
		t.Fatal(err)
	}
	branchAll("reused")
	if s, err := e.SnapshotInfo(t.Context(), "d"); err != nil || len(s.Sandboxes)+len(s.Dependents) != 0 {
		t.Errorf("the new snapshot of the tag: %+v, %v", s, err)
	}
	h.delete(e, false, "d")
	if h.retiredFolders() != 1 {
		t.Errorf("%d snapshots without a tag are kept, want 1", h.retiredFolders())
	}
	if _, err := e.Rollback(t.Context(), sb.ID, "first-live"); err != nil {
		t.Errorf("roll back to a branch of its own: %v", err)
	}
	eventually(t, "removal of what it lay over", func() bool { return h.retiredFolders() == 0 })
	for _, b := range e.List() {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	h.delete(e, false, made...)
	eventually(t, "empty store", func() bool { return len(layerIDs(t, e)) == 0 && len(pinNames(t, e)) == 0 })
}

// When the sandbox ends, by itself or by a kill, or while no daemon runs, its retired snapshot is
// removed.
func TestWhatWasKeptGoesWithTheSandbox(t *testing.T) {
	for name, end := range map[string]func(h *host, e *Engine, id string) *Engine{
		"kill": func(h *host, e *Engine, id string) *Engine {
			if err := e.Kill(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			return e
		},
		"panic": func(h *host, e *Engine, id string) *Engine {
			_, _ = e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "panic"})
			return e
		},
		"between two daemons": func(h *host, e *Engine, id string) *Engine {
			h.close(e)
			h.killAll()
			return h.open()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			e := h.open()
			sb := h.disky(e, 1)[0]
			h.delete(e, true, "d")
			if h.retiredFolders() != 1 {
				t.Fatal("it is not kept")
			}
			e = end(h, e, sb.ID)
			eventually(t, "removal", func() bool {
				return h.retiredFolders() == 0 && !slices.ContainsFunc(pinNames(t, e), func(n string) bool { return strings.HasPrefix(n, "retired.") })
			})
		})
	}
}

// A sandbox can be put back to the remaining snapshots of its ancestry, even if snapshots in
// between are gone.
func TestRollbackPastDeletedAncestors(t *testing.T) {
	h := newHost(t)
	e := h.open()
	sb := h.disky(e, 1)[0]
	last := sb.ID
	for i, tag := range []string{"b1", "b2", "b3"} {
		if err := h.branch(e, last, tag); err != nil {
			t.Fatal(err)
		}
		last = h.fork(e, tag, 1)[0].ID
		if s, err := e.SnapshotInfo(t.Context(), tag); err != nil || s.ChainDepth() != i+1 {
			t.Errorf("%s: %+v, %v", tag, s, err)
		}
	}
	h.delete(e, true, "b1", "b2", "b3")
	h.close(e)
	e = h.open()
	_, err := e.Rollback(t.Context(), last, "b2")
	wantError(t, err, sandbox.ErrNotFound, "valid snapshots: d")
	if _, err := e.Rollback(t.Context(), last, "d"); err != nil {
		t.Fatal(err)
	}
	if info, err := e.Get(last); err != nil || info.RolledBackTo != "d" {
		t.Errorf("got %+v, %v", info, err)
	}
}

// A guest forks itself although its snapshot is deleted.
func TestAGuestForksAfterItsSnapshotsDeletion(t *testing.T) {
	g := newGuestBench(t)
	g.delete(g.e, true, "a")
	child := g.forked(g.root.ID, 1)[0]
	g.forked(child, 1)
	for _, b := range g.e.List() {
		if err := g.e.Kill(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	g.noneTransient()
	eventually(t, "empty store", func() bool { return len(layerIDs(t, g.e)) == 0 && g.retiredFolders() == 0 })
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
