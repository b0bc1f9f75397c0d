package vmproc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

// groupsIn returns the groups of VMs in the group around them; an empty name is the root's.
func groupsIn(t *testing.T, root *cgroup.Root, around string) (names []string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(root.Dir(), around, "v*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		names = append(names, filepath.Base(d))
	}
	return names
}

// forkInto forks n children for an owner, and checks that each is in the group named by around.
func forkInto(h *enginefake.Host, e *engine.Engine, root *cgroup.Root, req sandbox.ForkRequest, around string) []sandbox.Info {
	h.T.Helper()
	r, err := e.Fork(h.T.Context(), req)
	if err != nil {
		h.T.Fatal(err)
	}
	var all []sandbox.Info
	for _, c := range r.Children {
		if c.Err != nil {
			h.T.Fatal(c.Err)
		}
		wantIn(h, root, c.Info, around)
		all = append(all, c.Info)
	}
	return all
}

// wantIn checks that a sandbox's process is alone in the group named in its journal, and that this
// group is in around.
func wantIn(h *enginefake.Host, root *cgroup.Root, info sandbox.Info, around string) {
	h.T.Helper()
	var rec vmproc.Record
	if err := vmproc.ReadJSON(h.JournalOf(info.PID), &rec); err != nil {
		h.T.Fatal(err)
	}
	if got := strings.TrimPrefix(filepath.Dir(rec.Group), "."); got != around {
		h.T.Errorf("%s of %q is in %q, want %q", info.ID, info.Owner, rec.Group, around)
	}
	wantFile(h.T, filepath.Join(root.Dir(), rec.Group), "cgroup.procs", fmt.Sprint(info.PID))
}

// A tenant's VMs are in the tenant's group: the ones in a shell of the operator's pool, in a shell
// of the tenant's pool, and newly started ones; also after a rollback, and under the next daemon.
func TestATenantsVMsAreInItsGroup(t *testing.T) {
	h, groups := newGroupedHost(t)
	h.Cfg.PoolSize = 2
	e := h.Open()
	h.Snapshot(e, "a")
	enginefake.Eventually(t, "shells of the operator's", func() bool { return e.Pools()[0].Ready == 2 })
	req := sandbox.ForkRequest{Tag: "a", N: 3, Owner: "acme"}
	sbs := forkInto(h, e, groups, req, "tenant-acme")
	own := forkInto(h, e, groups, sandbox.ForkRequest{Tag: "a", N: 1}, "")
	for _, i := range e.List() {
		if i.Use == nil {
			t.Errorf("%s of %q has no use", i.ID, i.Owner)
		}
	}

	created := sandbox.CreateRequest{Tag: "acme-b", Image: "tiny", Owner: "acme"}
	if _, err := e.CreateSnapshot(t.Context(), created, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.SetPool(t.Context(), "acme-b", 2); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "2 shells beside 3 sandboxes", func() bool { return len(groupsIn(t, groups, "tenant-acme")) == 5 })
	forkInto(h, e, groups, sandbox.ForkRequest{Tag: "acme-b", N: 1}, "") // the operator's, in a shell of the tenant's
	if _, err := e.Rollback(t.Context(), sbs[0].ID, "a"); err != nil {
		t.Fatal(err)
	}
	back, err := e.Get(sbs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	wantIn(h, groups, back, "tenant-acme")
	h.Close(e)

	if _, err := groups.New("gone", cgroup.Tree{Name: "x"}, cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	outside(h, groups, sbs[1])
	h.Cfg.PoolSize = 0
	e = h.Open()
	if err := e.SetPool(t.Context(), "acme-b", 0); err != nil {
		t.Fatal(err)
	}
	if around := groupsOf(t, groups); slices.Contains(around, "tenant-gone") {
		t.Errorf("the next daemon leaves %v", around)
	}
	for _, sb := range []sandbox.Info{back, sbs[1], sbs[2]} {
		wantIn(h, groups, sb, "tenant-acme")
	}
	wantIn(h, groups, own[0], "")
	for _, i := range e.List() {
		if i.Use == nil {
			t.Errorf("in the next daemon's list %s of %q has no use", i.ID, i.Owner)
		}
	}
	for _, sb := range sbs {
		if err := e.Kill(t.Context(), sb.ID); err != nil {
			t.Error(err)
		}
	}
	enginefake.Eventually(t, "the end of the tenant's group", func() bool {
		_, err := os.Stat(filepath.Join(groups.Dir(), "tenant-acme"))
		return os.IsNotExist(err)
	})
}

// outside moves a VM to the group where a daemon without tenant groups would have put it.
func outside(h *enginefake.Host, root *cgroup.Root, sb sandbox.Info) {
	h.T.Helper()
	path := h.JournalOf(sb.PID)
	var rec vmproc.Record
	if err := vmproc.ReadJSON(path, &rec); err != nil {
		h.T.Fatal(err)
	}
	old, err := root.New("", cgroup.Tree{}, cgroup.Limits{})
	if err != nil {
		h.T.Fatal(err)
	}
	from := root.Find(rec.Group)
	if err := from.Move(old); err != nil {
		h.T.Fatal(err)
	}
	rec.Group = old.Name()
	if err := vmproc.WriteJSON(path, rec); err != nil {
		h.T.Fatal(err)
	}
}

// If a shell dies during its move, the fork tries another one, and no group is left.
func TestAShellThatDiesOnItsWayToATenant(t *testing.T) {
	h, groups := newGroupedHost(t)
	h.Cfg.PoolSize = 1
	e := h.Open()
	h.Snapshot(e, "a")
	enginefake.Eventually(t, "a shell", func() bool { return e.Pools()[0].Ready == 1 })
	h.Fault("restore-die", 1)
	sb := forkInto(h, e, groups, sandbox.ForkRequest{Tag: "a", N: 1, Owner: "acme"}, "tenant-acme")[0]
	if got := groupsIn(t, groups, "tenant-acme"); len(got) != 1 {
		t.Errorf("of the tenant are %v", got)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if got := groupsOf(t, groups); slices.Contains(got, "tenant-acme") {
		t.Errorf("at the end there are %v", got)
	}
}
