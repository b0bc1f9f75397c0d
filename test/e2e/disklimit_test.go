package e2e

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// A sandbox at its disk limit stalls, its sibling is not affected, and a rollback restores it
// within the same limit.
func TestLimitsOfDiskSpace(t *testing.T) {
	t.Parallel()
	kvmtest.Require(t)
	kvmtest.Drawn(t)
	d := secondDaemon(t)
	imageWithDisk(t, d.images(), "box")
	d.start()
	if _, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "parent", Image: "box"}, nil); err != nil {
		t.Fatal(err)
	}
	one := 1
	limited := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "parent", N: &one,
		SandboxLimits: api.SandboxLimits{DiskLimitMiB: 16}}).OK()
	sibling := d.forkOf("parent", 1)[0]
	if len(limited) != 1 || limited[0].DiskLimitMiB != 16 {
		t.Fatalf("got %+v", limited)
	}
	id := limited[0].ID
	const fill = "busybox dd if=/dev/urandom of=/root/fill bs=1M count=64 2>/dev/null; busybox sync"
	full := func() {
		t.Helper()
		_, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"busybox", "sh", "-c", fill}})
		wantError(t, err, api.CodeNoSpace, id, "disk limit of 16 MiB is reached", "disk_limit")
	}
	full()
	sb, err := d.c.Sandbox(t.Context(), id)
	if err != nil || sb.Status != api.SandboxStalled || !strings.Contains(sb.Reason, "its disk is full") {
		t.Errorf("it is %s (%s), %v", sb.Status, sb.Reason, err)
	}
	for _, args := range [][]string{{"exec", id, "--", "true"}, {"cp", id + ":/etc/hostname", t.TempDir()}} {
		if _, _, errs := d.cli(args...); !strings.Contains(errs, "forkd rollback "+id) {
			t.Errorf("%s: the advice is not about its limit: %s", args[0], errs)
		}
	}
	d.sh(sibling.ID, fill) // the sibling has no limit
	if _, err := d.c.Rollback(t.Context(), id, "parent"); err != nil {
		t.Fatal(err)
	}
	d.sh(id, "echo kept > /root/kept; busybox sync")
	full()
}
