package guestinit

import (
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/sys/fairserver"
)

// knobs of the kernel by file name, or by pattern of several. One that a kernel does not have is passed over.
var knobs = map[string]string{
	"/proc/sys/vm/stat_interval":              "3600", // per-CPU counters are folded every second otherwise
	"/proc/sys/vm/compaction_proactiveness":   "0",    // kcompactd looks twice a second otherwise
	"/proc/sys/kernel/watchdog":               "0",    // a timer per CPU; the host watches the guest
	"/proc/sys/kernel/hung_task_timeout_secs": "0",    // khungtaskd looks every two minutes otherwise

	// A guest with 512 MiB and more has huge pages otherwise: who writes to one page of 2 MiB that it has not
	// written to before has the kernel write to all 512, and khugepaged copies what it finds together. Each page written is one of
	// the clone's own, and an exit or two; the host backs none of them with a huge page.
	"/sys/kernel/mm/transparent_hugepage/enabled": "never",

	// What a clone wrote for its identity would go to its disk after 5 s otherwise, while its siblings still get theirs.
	// Hundredths of a second; fsync, sync, a snapshot of the disk alone and a shortage of memory wait for nothing.
	"/proc/sys/vm/dirty_writeback_centisecs": "6000",
	// Throttling of writes for the sake of reads has a timer of 100 ms run after each request; the host does that better.
	"/sys/block/vd*/queue/wbt_lat_usec": "0",
}

// calm stops the kernel from waking up and writing to memory because time
// passes: each page that changes in an idle clone is a page of its own, and each
// time that it wakes up costs the host, which has hundreds of them.
func calm() {
	for pattern, value := range knobs {
		files, _ := filepath.Glob(pattern)
		for _, name := range files {
			_ = os.WriteFile(name, []byte(value), 0)
		}
	}
	_ = fairserver.Off()
}
