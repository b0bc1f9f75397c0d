// Package sched sets precedence on a host with few CPUs. Forks go before background work (Traffic,
// StandBack), and the daemon and waiting shells before guests (RaisePriority). Each limits
// concurrency. The package is a leaf that every package of the engine may import. StandBack lowers
// a thread's priority permanently.
package sched

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Each runs f(0) to f(n-1), at most limit of them concurrently, and waits for all.
func Each(n, limit int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, max(1, limit)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// RaiseFileLimit raises the limit of descriptors to three or more per sandbox. Without the
// permission, the existing limit remains.
func RaiseFileLimit() {
	const want = 1 << 17
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Cur >= want {
		return
	}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: max(want, l.Max)}) != nil {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.Max, Max: l.Max})
	}
}

// StandBack moves the calling goroutine permanently to a thread of the lowest priority. what is for
// the log.
func StandBack(log *slog.Logger, what string) {
	runtime.LockOSThread() // never unlocked: the thread ends with its priority
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19); err != nil {
		log.Debug("lower the priority of "+what, "err", err) // a service may not be allowed to
	}
}
