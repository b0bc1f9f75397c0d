package guestinit

import (
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/sys/fairserver"
)

// knobs are kernel settings by file name or pattern. Settings that a kernel does not have are
// skipped.
var knobs = map[string]string{
	"/proc/sys/vm/stat_interval":              "3600", // default: folds per-CPU counters every second
	"/proc/sys/vm/compaction_proactiveness":   "0",    // default: kcompactd checks twice a second
	"/proc/sys/kernel/watchdog":               "0",    // default: a timer per CPU; the host watches the guest
	"/proc/sys/kernel/hung_task_timeout_secs": "0",    // default: khungtaskd checks every two minutes

	// By default a guest with 512 MiB or more has huge pages. With them, the first write to a page
	// makes the kernel write to all 512 pages of 2 MiB, and khugepaged copies pages to join them.
	// Each written page becomes private to the clone and costs an exit or two. The host does not
	// back these pages with huge pages.
	"/sys/kernel/mm/transparent_hugepage/enabled": "never",

	// By default, a clone's writes for its identity go to its disk after 5 s, while its siblings
	// still get theirs. The unit is hundredths of a second. fsync, sync, a disk-only snapshot and
	// memory pressure do not wait.
	"/proc/sys/vm/dirty_writeback_centisecs": "6000",
	// Write throttling, which favors reads, runs a timer of 100 ms after each request. The host
	// does this better.
	"/sys/block/vd*/queue/wbt_lat_usec": "0",
}

// stopPeriodicWork stops periodic work of the kernel. Each page written in an idle clone becomes a private
// page, and each wake-up costs time on the host, which runs hundreds of clones.
func stopPeriodicWork() {
	for pattern, value := range knobs {
		files, _ := filepath.Glob(pattern)
		for _, name := range files {
			_ = os.WriteFile(name, []byte(value), 0)
		}
	}
	_ = fairserver.Off()
}
