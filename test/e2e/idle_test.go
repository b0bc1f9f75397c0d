package e2e

import (
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// Features that wake an idle guest's kernel are off (docs/inside/agent.md, "The fair server",
// "Writes that can wait").
func TestAnIdleGuestsKernelIsLeftAlone(t *testing.T) {
	d := shared(t)
	got := d.sh(d.oneSandbox(), `mkdir /tmp/debug && mount -t debugfs none /tmp/debug
		cat /tmp/debug/sched/fair_server/cpu0/runtime /proc/sys/kernel/hung_task_timeout_secs /proc/sys/kernel/watchdog /proc/sys/vm/stat_interval
		cat /proc/sys/vm/dirty_writeback_centisecs; cat /sys/block/vd*/queue/wbt_lat_usec | sort -u
		umount /tmp/debug && rmdir /tmp/debug; mount | grep -c debugfs; true`)
	if want := "0\n0\n0\n3600\n6000\n0\n0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// From 512 MiB on, Linux uses huge pages on first touch and merges pages into more of them. A child
// would get private copies of these pages.
func TestALargeGuestMakesNoHugePages(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	if _, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "large", Image: "box", MemoryMiB: 640}, nil); err != nil {
		t.Fatal(err)
	}
	defer d.c.DeleteSnapshot(t.Context(), "large", client.DeleteOptions{})
	n := 1
	res, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "large", N: &n})
	if err != nil {
		t.Fatal(err)
	}
	id := res.Sandboxes[0].ID
	defer d.kill(id)
	if got := d.sh(id, "cat /sys/kernel/mm/transparent_hugepage/enabled"); got != "always madvise [never]" {
		t.Errorf("huge pages: %q", got)
	}
}
