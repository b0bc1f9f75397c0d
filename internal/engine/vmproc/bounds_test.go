package vmproc_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// newGroupedHost returns a host with cgroups, with the available controllers.
func newGroupedHost(t *testing.T) (*enginefake.Host, *cgroup.Root) {
	t.Helper()
	groups, err := cgroup.Open(fmt.Sprintf("forkd-engine-%d", os.Getpid()))
	if errors.Is(err, cgroup.ErrUnsupported) {
		kvmtest.Require(t)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := groups.Sweep(nil); err != nil {
			t.Error(err)
		}
		groups.Close()
	})
	h := enginefake.NewHost(t)
	h.Cfg.Groups = groups
	return h, groups
}

// groupsOf returns the names of the existing groups.
func groupsOf(t *testing.T, root *cgroup.Root) (names []string) {
	t.Helper()
	for _, pattern := range []string{"v*", "tree-*", "tenant-*"} {
		dirs, err := filepath.Glob(filepath.Join(root.Dir(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range dirs {
			names = append(names, filepath.Base(d))
		}
	}
	return names
}

func TestEachVMIsInAGroupThatGoesWithIt(t *testing.T) {
	h, groups := newGroupedHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := h.Fork(e, "a", 3)
	if got := groupsOf(t, groups); len(got) != 3 {
		t.Errorf("for 3 VMs there are the groups %v", got)
	}
	for _, i := range e.List() {
		if i.Use == nil || i.Use.CPU == 0 {
			t.Errorf("%s uses %+v", i.ID, i.Use)
		}
	}
	if err := e.Kill(t.Context(), sbs[0].ID); err != nil {
		t.Fatal(err)
	}
	if got := groupsOf(t, groups); len(got) != 2 {
		t.Errorf("when one was killed there are %v", got)
	}
	if err := unix.Kill(sbs[1].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failure of the killed one", enginefake.Failed(e, sbs[1].ID))
	if got := groupsOf(t, groups); len(got) != 1 {
		t.Errorf("when one has ended by itself there are %v", got)
	}

	// A rollback gives the sandbox another group.
	before := groupsOf(t, groups)[0]
	if _, err := e.Rollback(t.Context(), sbs[2].ID, "a"); err != nil {
		t.Fatal(err)
	}
	if got := groupsOf(t, groups); len(got) != 1 || got[0] == before {
		t.Errorf("after a rollback in %s there are %v", before, got)
	}
	h.Close(e)

	// The next daemon finds the groups of running VMs, and removes leftover groups.
	if _, err := groups.New("", cgroup.Tree{Name: "gone"}, cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	if l := e.List(); len(l) != 2 || !slices.ContainsFunc(l, func(i sandbox.Info) bool { return i.Use != nil }) {
		t.Errorf("the next daemon lists %+v", l)
	}
	if got := groupsOf(t, groups); len(got) != 1 {
		t.Errorf("the next daemon leaves %v", got)
	}
	if err := e.Kill(t.Context(), sbs[2].ID); err != nil {
		t.Fatal(err)
	}
	if got := groupsOf(t, groups); len(got) != 0 {
		t.Errorf("at the end there are %v", got)
	}
}

func TestAFailedForkLeavesNoGroup(t *testing.T) {
	h, groups := newGroupedHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	for _, how := range []string{"restore-die", "restore-fail", "identity-clone"} {
		h.Fault(how, 1)
		if r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1}); err == nil && r.Children[0].Err == nil {
			t.Errorf("%s: a child was made", how)
		}
		if got := groupsOf(t, groups); len(got) != 0 {
			t.Errorf("%s leaves %v", how, got)
		}
	}
}

// A limit applies wherever its controller exists: to a pooled shell, to a newly started VM, to a
// tree, and to a fork by a guest.
func TestLimitsAreTheGroups(t *testing.T) {
	h, groups := newGroupedHost(t)
	for _, c := range []cgroup.Controller{cgroup.Memory, cgroup.CPU, cgroup.PIDs} {
		if !slices.Contains(groups.Controllers(), c) {
			kvmtest.Require(t)
			t.Fatalf("the machine has no %s controller", c)
		}
	}
	h.Cfg.PoolSize = 1
	e := h.Open()
	h.Snapshot(e, "a")
	limits := sandbox.Limits{MemoryMiB: 512, CPUs: 0.5, CPUWeight: 50}
	tree := limits
	tree.Tree = sandbox.TreeBudget{MemoryMiB: 1024, CPUs: 2}
	for _, l := range []sandbox.Limits{limits, limits, tree} {
		r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Limits: l, GuestFork: true})
		if err != nil || r.Children[0].Err != nil {
			t.Fatal(err, r.Children)
		}
		info := r.Children[0].Info
		var rec vmproc.Record
		if err := vmproc.ReadJSON(h.JournalOf(info.PID), &rec); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(groups.Dir(), rec.Group)
		wantFile(t, dir, "memory.max", "536870912")
		wantFile(t, dir, "memory.oom.group", "1")
		wantFile(t, dir, "cpu.max", "50000 100000")
		wantFile(t, dir, "cpu.weight", "50")
		if l == tree {
			wantFile(t, filepath.Dir(dir), "memory.max", "1073741824")
			wantFile(t, filepath.Dir(dir), "cpu.max", "200000 100000")
		}
		if info.Limits != l {
			t.Errorf("recorded: %+v", info.Limits)
		}
		if err := e.Kill(t.Context(), info.ID); err != nil {
			t.Error(err)
		}
	}
}

func wantFile(t *testing.T, dir, name, want string) {
	t.Helper()
	if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want+"\n" {
		t.Errorf("%s is %q, %v, want %s", name, b, err, want)
	}
}
