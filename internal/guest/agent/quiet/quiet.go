// Package quiet keeps an idle agent from writing to memory. Every page that a clone's agent writes
// becomes a private page. So the Go runtime collects garbage only after the heap has grown, never
// because time passed, and a parent is cleaned up before its snapshot. The package changes settings
// of the whole process, so only main calls Tune. Garbage collection by percentage must stay off,
// because that also disables the runtime's forced collection every two minutes.
package quiet

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/forkd/forkd/internal/sys/timerslack"
)

const (
	// baseLimit is the Go memory below which no garbage is collected.
	baseLimit = 24 << 20
	// maxProcs limits the runtime's per-processor caches.
	maxProcs = 2
)

// Tune configures the runtime. An explicit GOMAXPROCS also stops the runtime from checking every
// second whether its limit has changed.
func Tune() {
	runtime.GOMAXPROCS(min(maxProcs, runtime.NumCPU()))
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(baseLimit)
	followHeap()
}

// Delays allowed for the agent's timers. With one processor only the runtime's monitor sleeps, to
// check for a call that keeps the processor for long. With more processors there are also sleeps of
// 3 µs between two threads.
const (
	slackAlone = 4 * time.Millisecond
	slack      = time.Millisecond
)

// Relax makes the runtime's monitor run less often. It caused most timer interrupts, each with
// exits, in a clone that takes its identity. /proc must be mounted.
func Relax() error {
	if runtime.GOMAXPROCS(0) == 1 {
		return timerslack.SetAll(slackAlone)
	}
	return timerslack.SetAll(slack)
}

// followHeap keeps the limit at twice the live heap, so a busy agent does not collect too often.
// Only collections run it: the cleanup of an unreachable object runs after each, and registers the
// next.
func followHeap() {
	marker := new([16]byte)
	runtime.AddCleanup(marker, func(struct{}) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		overhead := m.Sys - m.HeapSys
		debug.SetMemoryLimit(max(baseLimit, int64(2*m.HeapAlloc+overhead)))
		followHeap()
	}, struct{}{})
}

// Settle collects garbage and returns freed memory, so that a snapshot contains neither.
func Settle() {
	runtime.GC()
	debug.FreeOSMemory()
}
