// Package quiet keeps an idle agent from touching memory. Every page that a
// clone's agent writes is a page of its own, once per clone: so the Go runtime
// collects garbage only when the heap has really grown, never because time
// passed, and a parent is cleaned up before its snapshot. It owns the runtime's
// settings for the process, so only main calls Tune. The trap: garbage
// collection by percentage must stay off, because that also turns off the
// runtime's forced collection every two minutes.
package quiet

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/forkd/forkd/internal/sys/timerslack"
)

const (
	// baseLimit is the Go memory up to which nothing is collected.
	baseLimit = 24 << 20
	// maxProcs bounds the runtime's per-processor caches.
	maxProcs = 2
)

// Tune sets the runtime up. An explicit GOMAXPROCS also stops the runtime from
// looking every second whether its limit has changed.
func Tune() {
	runtime.GOMAXPROCS(min(maxProcs, runtime.NumCPU()))
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(baseLimit)
	followHeap()
}

// How late the agent's sleeps may end. With one processor only the runtime's monitor sleeps, which
// looks whether a call has kept that processor for long; with more there are the sleeps of 3 µs
// between two threads, too.
const (
	slackAlone = 4 * time.Millisecond
	slack      = time.Millisecond
)

// Relax lets the runtime's monitor look less often: in a clone that takes its identity most timer
// interrupts, and the exits for each, were its. /proc has to be there.
func Relax() error {
	if runtime.GOMAXPROCS(0) == 1 {
		return timerslack.SetAll(slackAlone)
	}
	return timerslack.SetAll(slack)
}

// followHeap keeps the limit at twice what is live, so that an agent with much
// to do is not busy collecting. It is woken by collections alone: the cleanup
// of an unreachable object runs after each and plants the next.
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

// Settle collects garbage and gives freed memory back, so that a snapshot
// holds neither.
func Settle() {
	runtime.GC()
	debug.FreeOSMemory()
}
