package e2e

import "testing"

// What would wake an idle guest's kernel is off (docs/agent.md, "The fair server", "Writes that can wait").
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
