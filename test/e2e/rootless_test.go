package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// someone is an ordinary user. Its group may open the devices of VMs.
const someone = 1000

// grant lets someone's group open a device until the test ends, like a distribution's rules.
func grant(t *testing.T, device string) {
	t.Helper()
	st, err := os.Stat(device)
	if err != nil {
		t.Fatal(err)
	}
	owner := st.Sys().(*syscall.Stat_t)
	t.Cleanup(func() {
		_ = os.Chmod(device, st.Mode().Perm())
		_ = os.Chown(device, int(owner.Uid), int(owner.Gid))
	})
	if err := os.Chown(device, -1, someone); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(device, 0o660); err != nil {
		t.Fatal(err)
	}
}

// give makes someone the owner of directories. The files in them are links to files of all daemons.
func give(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return os.Chown(name, someone, someone)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A daemon of an unprivileged user has its VMs in a jail, too: in a user namespace.
func TestAnOrdinaryUsersVMsAreInAJail(t *testing.T) {
	kvmtest.Require(t)
	kvmtest.Drawn(t)
	d := secondDaemon(t, "--jail", "strict", "--pool", "1")
	if err := putImage(t, d.images(), "box", imageFiles{}); err != nil {
		t.Fatal(err)
	}
	if harness.Ordinary() == nil { // otherwise all daemons run as an ordinary user, who keeps the devices
		grant(t, "/dev/kvm")
		grant(t, "/dev/userfaultfd")
		give(t, d.Dir)
		d.User = &syscall.Credential{Uid: someone, Gid: someone}
	}
	d.start()
	if _, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "parent", Image: "box"}, nil); err != nil {
		t.Fatal(err)
	}
	n := 2
	for _, sb := range d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "parent", N: &n}).OK() {
		status := statusOf(t, fmt.Sprintf("/proc/%d", *sb.PID))
		if strings.HasPrefix(status["Uid"], "0") || strings.Trim(status["CapPrm"]+status["CapBnd"], "0") != "" ||
			status["NoNewPrivs"] != "1" || status["Seccomp"] != "2" {
			t.Errorf("%s has %v", sb.ID, status)
		}
		ours, err1 := os.Readlink("/proc/self/ns/user")
		theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", *sb.PID))
		if err1 != nil || err2 != nil || ours == theirs {
			t.Errorf("%s: its user namespace is %s, ours %s (%v, %v)", sb.ID, theirs, ours, err1, err2)
		}
		if got := d.sh(sb.ID, "echo hello"); got != "hello" {
			t.Errorf("%s says %q", sb.ID, got)
		}
		res := d.branch(sb.ID, api.BranchRequest{Tag: "of-" + sb.ID, Mode: api.BranchLive, N: 1})
		if res.Mechanism != "wp-async" {
			t.Errorf("its live branch found writes by %q", res.Mechanism)
		}
		if got := d.sh(res.Children[0].ID, "echo hello"); got != "hello" {
			t.Errorf("its child says %q", got)
		}
		if _, err := d.c.Rollback(t.Context(), sb.ID, "parent"); err != nil {
			t.Errorf("rollback of %s: %v", sb.ID, err)
		}
	}
}
