package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// take makes a guest write 120 MiB of private memory.
const take = `python3 -c 'b = b"x" * (120 << 20); print(len(b))'`

// limited requests one child with limits. With limits of the tree, the child's guest may fork it.
func limited(memoryMiB int, limits api.SandboxLimits) api.CreateSandboxesRequest {
	n := 1
	tree := api.SandboxLimits{TreeMemoryLimitMiB: limits.TreeMemoryLimitMiB, TreePIDs: limits.TreePIDs,
		TreeDiskLimitMiB: limits.TreeDiskLimitMiB}
	req := api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, SandboxLimits: limits,
		GuestFork: tree != api.SandboxLimits{}}
	if memoryMiB > 0 {
		req.MemoryLimitMiB = &memoryMiB
	}
	return req
}

// forkLimited makes one child with limits, which is killed at the end of the test.
func (d *daemon) forkLimited(memoryMiB int, limits api.SandboxLimits) api.SandboxInfo {
	d.t.Helper()
	res := d.forkSome(limited(memoryMiB, limits))
	if sb := res.Sandboxes[0]; sb.Error != "" {
		d.t.Fatal(sb.Error)
	}
	return res.Sandboxes[0]
}

// refusesWithoutCgroups reports whether the daemon runs as an ordinary user, who has no cgroups in
// the machine. The daemon must then refuse the limits, and the test has no more to check.
func (d *daemon) refusesWithoutCgroups(memoryMiB int, limits api.SandboxLimits) bool {
	d.t.Helper()
	if harness.Ordinary() == nil {
		return false
	}
	_, err := d.c.Fork(d.t.Context(), limited(memoryMiB, limits))
	wantError(d.t, err, api.CodeUnsupported, "no cgroup v2", "limit_unsupported")
	return true
}

// useOf returns a sandbox's usage from the daemon's list.
func (d *daemon) useOf(id string) api.SandboxUse {
	d.t.Helper()
	list, err := d.c.ListSandboxes(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(sb api.SandboxInfo) bool { return sb.ID == id })
	if i < 0 || list[i].Use == nil {
		d.t.Fatalf("of %s the list has no use", id)
	}
	return *list[i].Use
}

func TestLimitsEndASandboxThatNeedsMoreMemory(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	if d.refusesWithoutCgroups(96, api.SandboxLimits{}) {
		return
	}
	victim, sibling := d.forkLimited(96, api.SandboxLimits{}), d.fork(1)[0]
	if code, out, errs := d.cli("ps"); code != 0 || !strings.Contains(out, "/96 MiB") {
		t.Errorf("ps: exit code %d, %s, and no limit:\n%s", code, errs, out)
	}
	r, err := d.c.Exec(t.Context(), victim.ID, api.ExecRequest{Args: []string{"sh", "-c", take}, TimeoutSecs: patience.Seconds()})
	if err == nil && r.ExitCode == 0 {
		t.Errorf("it has 120 MiB of 96: %+v, use %+v", r, d.useOf(victim.ID))
	}
	const reason = "memory limit of 96 MiB reached"
	eventually(t, "failure of the sandbox with the limit", func() bool {
		info, err := d.c.Sandbox(t.Context(), victim.ID)
		if err != nil {
			t.Fatal(err)
		}
		if info.Status == api.SandboxFailed && info.Reason != reason {
			t.Fatalf("the reason is %q, want %q", info.Reason, reason)
		}
		return info.Status == api.SandboxFailed
	})
	if got := d.sh(sibling.ID, take); got != "125829120" {
		t.Errorf("its sibling has %q", got)
	}
	if u := d.useOf(sibling.ID); u.MemoryPeakBytes < 120<<20 || u.CPUMS <= 0 || u.Threads == 0 {
		t.Errorf("its sibling used %+v", u)
	}
}

// TestTheDaemonHasAMemoryLimitOfItsOwn checks that a fault of the daemon cannot take memory from
// VMs, and that the kernel prefers to end the daemon, which is restarted and adopts the VMs.
func TestTheDaemonHasAMemoryLimitOfItsOwn(t *testing.T) {
	d := shared(t)
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", d.PID())); err != nil || strings.TrimSpace(string(b)) != "0" {
		t.Errorf("the daemon's oom_score_adj is %q, %v", b, err)
	}
	if harness.Ordinary() != nil {
		return // an ordinary user has no cgroups in the machine
	}
	group, max := groupOf(t, d.PID())
	if limit, err := strconv.ParseInt(max, 10, 64); err != nil || limit < 1<<30 {
		t.Errorf("memory.max of its group %s is %q", group, max)
	}
	sb := d.fork(1)[0]
	if of, _ := groupOf(t, *sb.PID); of == group {
		t.Errorf("a VM is in the daemon's group %s", of)
	}
}

// groupOf returns a process's cgroup and its memory.max.
func groupOf(t *testing.T, pid int) (path, limit string) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ = strings.Cut(strings.TrimSpace(string(b)), "::")
	max, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "memory.max"))
	if err != nil {
		t.Fatal(err)
	}
	return path, strings.TrimSpace(string(max))
}

func TestLimitsHoldUpACPU(t *testing.T) {
	d, limits := shared(t), api.SandboxLimits{CPUs: 0.2, CPUWeight: 50}
	if d.refusesWithoutCgroups(0, limits) {
		return
	}
	id := d.forkLimited(0, limits).ID
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = d.c.Exec(ctx, id, api.ExecRequest{Args: []string{"sh", "-c", "while :; do :; done"}, TimeoutSecs: patience.Seconds()})
	}()
	defer func() { cancel(); <-ended }()
	eventually(t, "time for which it is held up", func() bool { return d.useOf(id).ThrottledMS > 0 })
	before, at := d.useOf(id), time.Now()
	eventually(t, "two seconds, and some use", func() bool {
		return time.Since(at) > 2*time.Second && d.useOf(id).CPUMS > before.CPUMS
	})
	took, used := time.Since(at), d.useOf(id).CPUMS-before.CPUMS
	if share := used / float64(took.Milliseconds()); share > 0.4 {
		t.Errorf("it had %.2f CPUs for %s, want 0.2", share, took)
	}
	code, out, errs := d.cli("top", "--once", "--json")
	if code != 0 || !strings.Contains(out, id) || !strings.Contains(out, `"cpus": 0.2`) {
		t.Errorf("top: exit code %d, %s:\n%s", code, errs, out)
	}
}

// forkAndTake makes the guest fork a child, which takes memory, and prints the child's result.
const forkAndTake = `
import forkd, json
if forkd.fork(1):
    b = b"x" * (150 << 20)
    forkd.exit(0)
[end] = forkd.wait()
print(json.dumps(dict(id=end.id, status=end.status)))
`

func TestLimitsOfATreeEndItsLargest(t *testing.T) {
	d, limits := shared(t), api.SandboxLimits{TreeMemoryLimitMiB: 160}
	if d.refusesWithoutCgroups(0, limits) {
		return
	}
	root := d.forkLimited(0, limits).ID
	defer d.killTree(t, root)
	var end struct{ ID, Status string }
	d.python(root, forkAndTake, &end)
	if end.Status != "died" {
		t.Errorf("the child: %+v", end)
	}
	child, err := d.c.Sandbox(t.Context(), end.ID)
	if err != nil || child.Status != api.SandboxFailed || !strings.Contains(child.Reason, "160 MiB of its tree of forks") {
		t.Errorf("the child is listed as %+v, %v", child, err)
	}
	if info, err := d.c.Sandbox(t.Context(), root); err != nil || info.Status != api.SandboxRunning {
		t.Errorf("the root: %+v, %v", info, err)
	}
}

// forkTwo makes a guest fork two children.
func (d *daemon) forkTwo(root string) []string {
	d.t.Helper()
	out := strings.Fields(d.sh(root, "forkd-fork 2"))
	if len(out) != 3 {
		d.t.Fatalf("forkd-fork printed %q", out)
	}
	return out[1:]
}

// Each fork gets its part of its tree's disk space. The running sandboxes together stay within the
// limit, and a child without any space left is not made.
func TestLimitsOfDiskSpaceOfATree(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	const treeMiB = 79 // less than three disks of 16, one new disk, and the layer of a fork under way
	outside := d.fork(1)[0]
	root := d.forkLimited(0, api.SandboxLimits{DiskLimitMiB: 16, TreeDiskLimitMiB: treeMiB}).ID
	defer d.killTree(t, root)
	before := allocated(t, d.owns())
	children := d.forkTwo(root)
	d.refusedIn(root, "forkd-fork 1", 3, "and it may fill 79")
	const fill = "dd if=/dev/urandom of=/root/fill bs=1M count=24 status=none; sync"
	for _, id := range children {
		_, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", fill}, User: "root"})
		wantError(t, err, api.CodeNoSpace, id, "disk limit of 16 MiB is reached", "disk_limit")
	}
	if grown := (allocated(t, d.owns()) - before) >> 20; grown > treeMiB {
		t.Errorf("the tree has filled %d MiB", grown)
	}
	d.sh(outside.ID, fill)
	d.alive(outside)
	d.kill(children[0]) // the space of its own data is freed
	if out := strings.Fields(d.sh(root, "forkd-fork 1")); len(out) != 2 {
		t.Errorf("forkd-fork printed %q", out)
	}
}

// allocated returns the disk space of a directory's files, in bytes.
func allocated(t *testing.T, dir string) (sum int64) {
	t.Helper()
	for _, name := range names(dir) {
		var st syscall.Stat_t
		err := syscall.Stat(filepath.Join(dir, name), &st)
		if err != nil && !errors.Is(err, syscall.ENOENT) { // the sandbox has ended meanwhile
			t.Fatal(err)
		}
		sum += st.Blocks * 512
	}
	return sum
}

func TestLimitsOfATreesThreads(t *testing.T) {
	d := shared(t)
	parent, err := d.c.Snapshot(t.Context(), parentTag)
	if err != nil {
		t.Fatal(err)
	}
	limits := api.SandboxLimits{TreePIDs: 3 * (parent.VCPUs + sandbox.VMMThreads)}
	if d.refusesWithoutCgroups(0, limits) {
		return
	}
	root := d.forkLimited(0, limits).ID
	defer d.killTree(t, root)
	children := d.forkTwo(root)
	d.refusedIn(root, "forkd-fork 1", 3, fmt.Sprintf("the limit of the tree is %d", limits.TreePIDs))
	if threads := d.useOf(root).Threads + d.useOf(children[0]).Threads + d.useOf(children[1]).Threads; threads > limits.TreePIDs {
		t.Errorf("the tree has %d threads, and may have %d", threads, limits.TreePIDs)
	}
	d.alive(d.fork(1)...) // sandboxes outside the tree are unaffected
	d.kill(children[0])
	if out := strings.Fields(d.sh(root, "forkd-fork 1")); len(out) != 2 {
		t.Errorf("forkd-fork printed %q", out)
	}
}

// tenant returns a client with a tenant's key, which is revoked at the end of the test.
func (d *daemon) tenant(name string) *client.Client {
	d.t.Helper()
	k, err := d.c.CreateKey(d.t.Context(), api.CreateKeyRequest{Name: "e2e", Tenant: name, Scopes: []string{"read", "run", "fork"}})
	if err != nil {
		d.t.Fatal(err)
	}
	c, err := client.New(client.Options{URL: d.url(), Token: k.Text})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		c.Close()
		if _, err := d.c.RevokeKey(context.Background(), k.ID); err != nil {
			d.t.Error(err)
		}
	})
	return c
}

// publish lets tenants fork from the parent until the test ends, one of them from a ready shell.
func (d *daemon) publish() {
	d.t.Helper()
	if _, err := d.c.PublishSnapshot(d.t.Context(), parentTag, true); err != nil {
		d.t.Fatal(err)
	}
	if err := d.c.SetPool(d.t.Context(), parentTag, 1); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_, err := d.c.PublishSnapshot(context.Background(), parentTag, false)
		if err := errors.Join(err, d.c.SetPool(context.Background(), parentTag, 0)); err != nil {
			d.t.Error(err)
		}
	})
	eventually(d.t, "a shell", func() bool { return d.pool().Ready == 1 })
}

// onFirstCPU binds all of a VMM's threads to the first CPU.
func onFirstCPU(t *testing.T, pid int) {
	t.Helper()
	var first unix.CPUSet
	first.Set(0)
	for _, name := range names(fmt.Sprintf("/proc/%d/task", pid)) {
		if thread, err := strconv.Atoi(name); err != nil {
			t.Fatal(err)
		} else if err := unix.SchedSetaffinity(thread, &first); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

// A tenant with four busy sandboxes gets no more of a CPU than a tenant with one. Its group has the
// weight set by the operator. One of its sandboxes came from a shell of the operator's pool.
func TestLimitsOfTenantsShareACPU(t *testing.T) {
	d := shared(t)
	if harness.Ordinary() != nil {
		_, err := d.c.SetTenant(t.Context(), "one", api.SetTenantRequest{CPUWeight: 200})
		wantError(t, err, api.CodeUnsupported, "no cgroup v2", "limit_unsupported")
		return
	}
	d.publish()
	ctx, cancel := context.WithCancel(t.Context())
	var spinning sync.WaitGroup
	defer func() { cancel(); spinning.Wait() }()
	all, groups := map[string][]string{}, map[string]string{}
	for _, n := range []int{4, 1} {
		name := map[int]string{1: "one", 4: "four"}[n]
		c := d.tenant(name)
		res, err := c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n})
		if err != nil {
			t.Fatal(err)
		}
		for _, sb := range res.OK() {
			defer c.Kill(context.Background(), sb.ID)
			info, err := d.c.Sandbox(t.Context(), sb.ID) // the API hides processes from tenants
			if err != nil {
				t.Fatal(err)
			}
			path, _ := groupOf(t, *info.PID)
			if groups[name] = filepath.Dir(path); filepath.Base(groups[name]) != "tenant-"+name {
				t.Errorf("a sandbox of %s is in %s", name, path)
			}
			onFirstCPU(t, *info.PID)
			all[name] = append(all[name], sb.ID)
			spinning.Go(func() {
				_, _ = c.Exec(ctx, sb.ID, api.ExecRequest{Args: []string{"sh", "-c", "while :; do :; done"}, TimeoutSecs: patience.Seconds()})
			})
		}
		if len(all[name]) != n {
			t.Fatalf("of %s are %v", name, all[name])
		}
	}
	prepared := func(id string) bool { r := d.sandboxReceipt(id); return r.VM != nil && r.VM.Prepared }
	if !slices.ContainsFunc(all["four"], prepared) {
		t.Error("none of four was made from a prepared shell")
	}
	used := func(name string) (ms float64) {
		for _, id := range all[name] {
			ms += d.useOf(id).CPUMS
		}
		return ms
	}
	eventually(t, "second in which both have about half of the CPU", func() bool {
		one, four := used("one"), used("four")
		time.Sleep(time.Second) // elapses: the CPU is shared
		one, four = used("one")-one, used("four")-four
		t.Logf("%.0f ms and %.0f ms", one, four)
		return one > 0.4*(one+four) && one < 0.6*(one+four)
	})
	if got, err := d.c.SetTenant(t.Context(), "one", api.SetTenantRequest{CPUWeight: 300}); err != nil || got.CPUWeight != 300 {
		t.Errorf("the weight is %+v, %v", got, err)
	}
	for name, want := range map[string]string{"one": "300\n", "four": "100\n"} {
		if b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", groups[name], "cpu.weight")); err != nil || string(b) != want {
			t.Errorf("cpu.weight of %s is %q, %v, want %q", name, b, err, want)
		}
	}
	if _, err := d.c.SetTenant(t.Context(), "one", api.SetTenantRequest{CPUWeight: 100}); err != nil {
		t.Error(err)
	}
}
