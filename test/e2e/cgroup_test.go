package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
)

// take has a guest write so much memory of its own.
const take = `python3 -c 'b = b"x" * (150 << 20); print(len(b))'`

// forkLimited makes one child with limits, which ends with the test.
func (d *daemon) forkLimited(memoryMiB int, limits api.SandboxLimits) api.SandboxInfo {
	d.t.Helper()
	n := 1
	req := api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, SandboxLimits: limits,
		GuestFork: limits.TreeMemoryLimitMiB > 0}
	if memoryMiB > 0 {
		req.MemoryLimitMiB = &memoryMiB
	}
	res := d.forkSome(req)
	if sb := res.Sandboxes[0]; sb.Error != "" {
		d.t.Fatal(sb.Error)
	}
	return res.Sandboxes[0]
}

// useOf is what the daemon's list says that a sandbox uses.
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
	d := shared(t)
	victim, sibling := d.forkLimited(96, api.SandboxLimits{}), d.fork(1)[0]
	if code, out, errs := d.cli("ps"); code != 0 || !strings.Contains(out, "/96 MiB") {
		t.Errorf("ps: exit code %d, %s, and no limit:\n%s", code, errs, out)
	}
	r, err := d.c.Exec(t.Context(), victim.ID, api.ExecRequest{Args: []string{"sh", "-c", take}, TimeoutSecs: patience.Seconds()})
	if err == nil && r.ExitCode == 0 {
		t.Errorf("it has 150 MiB of 96: %+v, use %+v", r, d.useOf(victim.ID))
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
	if got := d.sh(sibling.ID, take); got != "157286400" {
		t.Errorf("its sibling has %q", got)
	}
	if u := d.useOf(sibling.ID); u.MemoryPeakBytes < 150<<20 || u.CPUMS <= 0 || u.Threads == 0 {
		t.Errorf("its sibling used %+v", u)
	}
}

func TestLimitsHoldUpACPU(t *testing.T) {
	d := shared(t)
	id := d.forkLimited(0, api.SandboxLimits{CPUs: 0.2, CPUWeight: 50}).ID
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

// forkAndTake forks one that takes memory, and tells what became of it.
const forkAndTake = `
import forkd, json
if forkd.fork(1):
    b = b"x" * (150 << 20)
    forkd.exit(0)
[end] = forkd.wait()
print(json.dumps(dict(id=end.id, status=end.status)))
`

func TestLimitsOfATreeEndItsLargest(t *testing.T) {
	d := shared(t)
	root := d.forkLimited(0, api.SandboxLimits{TreeMemoryLimitMiB: 160}).ID
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
