//go:build linux

// Package timerslack sets the kernel's timer slack (prctl(2)), by which it may delay the end of threads' sleeps,
// so that a Go program has fewer of them. The runtime's monitor checks a busy process every 20 µs, which on an
// emulating CPU is half of the work. The package holds no state. VMMs and the guest's agent use it for all
// threads, the daemon only for the monitor. Beware: programs inherit the slack from the thread that starts them.
package timerslack

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Default is the kernel's default: 50 µs.
const Default = 50 * time.Microsecond

// Starting calls start in a thread with slack d, which a started process inherits. Afterwards it restores the
// thread's slack. It calls start even if the kernel refuses to change the slack.
func Starting(d time.Duration, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0)
		defer unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
	}
	return start()
}

// SetAll sets the slack of all threads of this process, which later threads inherit. It needs /proc and, for
// threads other than the caller's, the right to change their nice value.
func SetAll(d time.Duration) error {
	ids, err := threads()
	if err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	for _, id := range ids {
		err := set(id, d)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("timer slack: %w", err)
		}
	}
	return nil
}

// SetWorkers sets the slack of n threads that run Go code. If there are no more than n, it sets it for all of
// them. The runtime's monitor keeps its initial slack. SetWorkers needs no special right. Threads started later
// inherit d, unless the monitor starts them.
func SetWorkers(d time.Duration, n int) error {
	failed := make(chan error, n)
	var all, set sync.WaitGroup
	set.Add(n)
	for range n {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			failed <- unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0)
			set.Done()
			set.Wait() // keeps each goroutine in its own thread
		})
	}
	all.Wait()
	close(failed)
	var err error
	for e := range failed {
		err = cmp.Or(err, e)
	}
	return err
}

// SetMonitor sets the slack of the runtime's monitor thread only. It is for processes whose own timers, and
// hand-overs between threads, must be prompt. It needs the same rights as SetAll.
func SetMonitor(d time.Duration) error {
	id, err := monitor()
	if err == nil {
		err = set(id, d)
	}
	if err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	return nil
}

// monitor returns the id of the monitor's thread. runtime.main starts it first, so it is the next thread after
// the process's first (runtime/proc.go). Thread ids may have wrapped in between.
func monitor() (int, error) {
	ids, err := threads()
	if err != nil {
		return 0, err
	}
	first, _ := slices.BinarySearch(ids, os.Getpid())
	if len(ids) < 2 {
		return 0, errors.New("the process has one thread")
	}
	return ids[(first+1)%len(ids)], nil
}

// threads returns the ids of this process's threads in order.
func threads() (ids []int, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

// set uses the thread's own directory in /proc, because a process's task directories have no such file.
func set(id int, d time.Duration) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", id), []byte(strconv.FormatInt(int64(d), 10)), 0)
}
