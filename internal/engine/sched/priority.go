package sched

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// controlNice is the priority of the daemon and of shells that wait for a guest. VMMs drop it when
// they get a guest (package vmm, priority.go).
const controlNice = -10

// RaisePriority gives control work precedence over guests' work. Without the permission, the daemon
// is only slower while many guests are busy. New threads inherit the priority from the existing
// ones.
func RaisePriority() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, controlNice)
		}
	}
}
