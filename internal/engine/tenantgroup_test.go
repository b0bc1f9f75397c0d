package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/domain/sandbox"
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
func (h *host) forkInto(e *Engine, root *cgroup.Root, req sandbox.ForkRequest, around string) []sandbox.Info {
	h.t.Helper()
	r, err := e.Fork(h.t.Context(), req)
	if err != nil {
		h.t.Fatal(err)
	}
	var all []sandbox.Info
	for _, c := range r.Children {
		if c.Err != nil {
			h.t.Fatal(c.Err)
		}
		h.wantIn(root, c.Info, around)
		all = append(all, c.Info)
	}
	return all
}

// wantIn checks that a sandbox's process is alone in the group named in its journal, and that this
// group is in around.
func (h *host) wantIn(root *cgroup.Root, info sandbox.Info, around string) {
	h.t.Helper()
	var rec vmproc.Record
	if err := vmproc.ReadJSON(h.journalOf(info.PID), &rec); err != nil {
		h.t.Fatal(err)
	}
	if got := strings.TrimPrefix(filepath.Dir(rec.Group), "."); got != around {
		h.t.Errorf("%s of %q is in %q, want %q", info.ID, info.Owner, rec.Group, around)
	}
	wantFile(h.t, filepath.Join(root.Dir(), rec.Group), "cgroup.procs", fmt.Sprint(info.PID))
}

// A tenant's VMs are in the tenant's group: the ones in a shell of the operator's pool, in a shell
// of the tenant's pool, and newly started ones; also after a rollback, and under the next daemon.
func TestATenantsVMsAreInItsGroup(t *testing.T) {
	h, groups := newGroupedHost(t)
	h.cfg.PoolSize = 2
	e := h.open()
	h.snapshot(e, "a")
	eventually(t, "shells of the operator's", func() bool { return e.Pools()[0].Ready == 2 })
	req := sandbox.ForkRequest{Tag: "a", N: 3, Owner: "acme"}
	sbs := h.forkInto(e, groups, req, "tenant-acme")
	own := h.forkInto(e, groups, sandbox.ForkRequest{Tag: "a", N: 1}, "")
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
	eventually(t, "2 shells beside 3 sandboxes", func() bool { return len(groupsIn(t, groups, "tenant-acme")) == 5 })
	h.forkInto(e, groups, sandbox.ForkRequest{Tag: "acme-b", N: 1}, "") // the operator's, in a shell of the tenant's
	if _, err := e.Rollback(t.Context(), sbs[0].ID, "a"); err != nil {
		t.Fatal(err)
	}
	back, err := e.Get(sbs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	h.wantIn(groups, back, "tenant-acme")
	h.close(e)

	if _, err := groups.New("gone", cgroup.Tree{Name: "x"}, cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	h.outside(groups, sbs[1])
	h.cfg.PoolSize = 0
	e = h.open()
	if err := e.SetPool(t.Context(), "acme-b", 0); err != nil {
		t.Fatal(err)
	}
	if around := groupsOf(t, groups); slices.Contains(around, "tenant-gone") {
		t.Errorf("the next daemon leaves %v", around)
	}
	for _, sb := range []sandbox.Info{back, sbs[1], sbs[2]} {
		h.wantIn(groups, sb, "tenant-acme")
	}
	h.wantIn(groups, own[0], "")
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
	eventually(t, "the end of the tenant's group", func() bool {
		_, err := os.Stat(filepath.Join(groups.Dir(), "tenant-acme"))
		return os.IsNotExist(err)
	})
}

// outside moves a VM to the group where a daemon without tenant groups would have put it.
func (h *host) outside(root *cgroup.Root, sb sandbox.Info) {
	h.t.Helper()
	path := h.journalOf(sb.PID)
	var rec vmproc.Record
	if err := vmproc.ReadJSON(path, &rec); err != nil {
		h.t.Fatal(err)
	}
	old, err := root.New("", cgroup.Tree{}, cgroup.Limits{})
	if err != nil {
		h.t.Fatal(err)
	}
	from := root.Find(rec.Group)
	if err := from.Move(old); err != nil {
		h.t.Fatal(err)
	}
	rec.Group = old.Name()
	if err := vmproc.WriteJSON(path, rec); err != nil {
		h.t.Fatal(err)
	}
}

// If a shell dies during its move, the fork tries another one, and no group is left.
func TestAShellThatDiesOnItsWayToATenant(t *testing.T) {
	h, groups := newGroupedHost(t)
	h.cfg.PoolSize = 1
	e := h.open()
	h.snapshot(e, "a")
	eventually(t, "a shell", func() bool { return e.Pools()[0].Ready == 1 })
	h.fault("restore-die", 1)
	sb := h.forkInto(e, groups, sandbox.ForkRequest{Tag: "a", N: 1, Owner: "acme"}, "tenant-acme")[0]
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
