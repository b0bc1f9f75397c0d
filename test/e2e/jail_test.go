package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kvmtest"
)

// With all of the jail a VMM owns nothing, and forks, branches and its guest's programs go as ever.
func TestVMMsInAJailOwnNothing(t *testing.T) {
	kvmtest.Require(t)
	d := secondDaemon(t, "--jail", "strict", "--pool", "1")
	if err := linkedImage(t, d.images(), "box"); err != nil {
		t.Fatal(err)
	}
	d.start()
	if _, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "parent", Image: "box"}, nil); err != nil {
		t.Fatal(err)
	}
	n := 2
	uids := map[string]bool{}
	for _, sb := range d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "parent", N: &n}).OK() {
		uid := d.jailed(*sb.PID)
		if uids[uid] || uid == "0" {
			t.Errorf("%s runs as user %s, others: %v", sb.ID, uid, uids)
		}
		uids[uid] = true
		if got := d.sh(sb.ID, "echo hello"); got != "hello" {
			t.Errorf("%s says %q", sb.ID, got)
		}
		res := d.branch(sb.ID, api.BranchRequest{Tag: "of-" + sb.ID, Mode: api.BranchLive, N: 1})
		if res.Mechanism != "wp-async" {
			t.Errorf("its live branch found writes by %q", res.Mechanism)
		}
		d.jailed(*res.Children[0].PID)
	}
}

// jailed checks what the kernel says of a VMM's process, and returns its user.
func (d *daemon) jailed(pid int) (uid string) {
	t := d.t
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.TrimSpace(value)
	}
	for name, want := range map[string]string{
		"CapInh": "0", "CapPrm": "0", "CapEff": "0", "CapBnd": "0", "CapAmb": "0", "NoNewPrivs": "1", "Seccomp": "2", "Groups": "",
	} {
		if got := strings.TrimLeft(status[name], "0"); got != strings.TrimLeft(want, "0") {
			t.Errorf("VMM %d: %s is %q, want %q", pid, name, status[name], want)
		}
	}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		theirs, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		ours, err2 := os.Readlink("/proc/self/ns/" + ns)
		if err1 != nil || err2 != nil || theirs == ours {
			t.Errorf("VMM %d: namespace %s is %s, ours %s (%v, %v)", pid, ns, theirs, ours, err1, err2)
		}
	}
	if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid)); err != nil || len(files) != 0 {
		t.Errorf("VMM %d: its root holds %v, %v", pid, files, err)
	}
	return regexp.MustCompile(`^\d+`).FindString(status["Uid"])
}
