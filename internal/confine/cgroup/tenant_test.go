package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func wantFile(t *testing.T, g *Group, file, want string) {
	t.Helper()
	if b, err := os.ReadFile(filepath.Join(g.dir(), file)); err != nil || strings.TrimSpace(string(b)) != want {
		t.Errorf("%s of %s is %q, %v, want %q", file, g.Name(), b, err, want)
	}
}

// Each surrounding group has the controllers and no processes.
func TestATenantsGroupHasTheControllers(t *testing.T) {
	r := openRoot(t)
	g := mustNewOf(t, r, "acme", Tree{Name: "sb-1"}, Limits{})
	_, said := run(t, g, "1")
	<-said
	for a := g.around(); a != nil; a = a.around() {
		on, err := listed(a.dir(), "cgroup.subtree_control")
		slices.Sort(on)
		if have := slices.Sorted(slices.Values(r.have)); err != nil || !slices.Equal(on, have) {
			t.Errorf("%s has %v, %v, want %v", a.Name(), on, err, have)
		}
		wantFile(t, a, "cgroup.procs", "")
	}
}

func TestOnlyNamesOfTenantsAreInGroups(t *testing.T) {
	r := openRoot(t)
	for _, name := range []string{"..", "a/b", "A", "a-b", "a.b", "a b", "\n", "ä", strings.Repeat("a", 65)} {
		if g, err := r.New(name, Tree{}, Limits{}); err == nil {
			t.Errorf("tenant %q has group %s", name, g.Name())
		}
		if err := r.SetTenantWeight(name, 10); err == nil {
			t.Errorf("tenant %q has a weight", name)
		}
	}
	for _, name := range []string{"tenant-a", "tenant-a/..", "tenant-/v00000001", "tenant-A/v00000001", "tree-x/tenant-a/v00000001",
		"tenant-a/tenant-b/v00000001", "../v00000001", "tenant-a/tree-x"} {
		if r.Find(name) != nil {
			t.Errorf("%q is found", name)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "*-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Groups with processes stay, whatever their surrounding groups. Empty groups are removed.
func TestEmptyGroupsOfTenantsAreSwept(t *testing.T) {
	r := openRoot(t)
	live := mustNewOf(t, r, "acme", Tree{}, Limits{})
	other := mustNewOf(t, r, "acme", Tree{Name: "b"}, Limits{})
	mustNewOf(t, r, "gone", Tree{Name: "c"}, Limits{})
	p, said := run(t, live, "1")
	<-said
	again, err := Open(filepath.Base(r.dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Sweep(nil); err != nil {
		t.Error(err)
	}
	if err := p.Process.Signal(syscall.Signal(0)); err != nil {
		t.Error("it ended a live one")
	}
	wantFile(t, again.Find(live.Name()), "cgroup.procs", fmt.Sprint(p.Process.Pid))
	for _, g := range []*Group{other, other.tree(), {root: r, name: "tenant-gone"}} {
		if _, err := os.Stat(g.dir()); err == nil {
			t.Errorf("%s is left", g.Name())
		}
	}
}

// A tenant's groups are created and removed concurrently, and so is the surrounding group.
func TestATenantsGroupComesAndGoesWithOthers(t *testing.T) {
	r := openRoot(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				g, err := r.New("acme", Tree{Name: "x"}, Limits{Weight: 7}.Only(r.have))
				if err == nil {
					err = g.Remove()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if _, err := os.Stat(filepath.Join(r.dir, "tenant-acme")); err == nil {
		t.Error("the tenant's is left")
	}
}

func TestAProcessMovesToATenant(t *testing.T) {
	r := openRoot(t)
	from, to := mustNew(t, r, Tree{}, Limits{}), mustNewOf(t, r, "acme", Tree{}, Limits{})
	if err := from.Move(to); !errors.Is(err, errNoProcess) {
		t.Errorf("of a group without processes: %v", err)
	}
	p, said := run(t, from, "1")
	<-said
	began := time.Now()
	if err := from.Move(to); err != nil {
		t.Fatal(err)
	}
	t.Logf("it took %s", time.Since(began))
	wantFile(t, from, "cgroup.procs", "")
	wantFile(t, to, "cgroup.procs", fmt.Sprint(p.Process.Pid))
	if err := from.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(from.dir()); err == nil {
		t.Error("the old group is left")
	}
}

func TestATenantsWeightIsItsGroups(t *testing.T) {
	r := openRoot(t, CPU)
	if err := r.SetTenantWeight("acme", 300); err != nil {
		t.Fatal(err)
	}
	g, other := mustNewOf(t, r, "acme", Tree{}, Limits{Weight: 50}), mustNewOf(t, r, "other", Tree{}, Limits{})
	wantFile(t, g, "cpu.weight", "50")
	wantFile(t, g.around(), "cpu.weight", "300")
	wantFile(t, other.around(), "cpu.weight", "100")
	for _, weight := range []int{20, 10_000} {
		if err := r.SetTenantWeight("acme", weight); err != nil {
			t.Fatal(err)
		}
		wantFile(t, g.around(), "cpu.weight", fmt.Sprint(weight))
	}
	if err := r.SetTenantWeight("acme", 10_001); err == nil {
		t.Error("the kernel has a larger weight")
	}
	wantFile(t, g.around(), "cpu.weight", "10000")
	// The last group is removed, but the weight stays.
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, mustNewOf(t, r, "acme", Tree{}, Limits{}).around(), "cpu.weight", "10000")
	r.have = nil
	if err := r.SetTenantWeight("acme", 10); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without the controller: %v", err)
	}
}

// A tenant with three times the weight gets three times as much of a CPU, even if the other tenant has more busy
// processes. Tests in test/e2e check with VMs that equal weights give equal shares.
func TestTenantsShareACPUByTheirWeights(t *testing.T) {
	r := openRoot(t, CPU)
	if err := r.SetTenantWeight("one", 300); err != nil {
		t.Fatal(err)
	}
	around := map[string]*Group{}
	for _, tenant := range []string{"one", "four", "four", "four", "four"} {
		g := mustNewOf(t, r, tenant, Tree{}, Limits{})
		run(t, g, "spin")
		around[tenant] = g.around()
	}
	used := func(tenant string) time.Duration {
		u, err := around[tenant].Use()
		if err != nil {
			t.Fatal(err)
		}
		return u.CPU
	}
	// On an emulated machine the kernel takes seconds to reach the shares.
	for begin := time.Now(); ; {
		one, four := used("one"), used("four")
		time.Sleep(time.Second) // elapses: the CPU is shared
		one, four = used("one")-one, used("four")-four
		share := float64(one) / float64(one+four)
		if share > 0.65 && share < 0.85 {
			return
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("the tenant with one has %.2f of the CPU, want 0.75", share)
		}
	}
}
