//go:build linux

// Package timerslack sets how late the kernel may let threads' sleeps end (prctl(2)), so that a Go
// program has fewer of them: the runtime's monitor looks every 20 µs at a process that has begun to
// do something, and on a CPU that emulates that is half of what it does. It owns nothing. VMMs and
// the guest's agent have it, and of the daemon the monitor alone. The trap: programs inherit it from the
// thread that starts them.
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

// Default is the kernel's own: 50 µs.
const Default = 50 * time.Microsecond

// Starting calls start in a thread whose slack is d, which a process inherits that it starts. What
// the thread had it has again afterwards. Where the kernel refuses, start is called all the same.
func Starting(d time.Duration, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0)
		defer unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
	}
	return start()
}

// SetAll gives all threads of this process the slack d; those that they start later have it, too.
// /proc has to be there, and for other threads than the caller's the right to nice them.
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

// SetWorkers gives n threads that run Go code the slack d, among them all that there are if those are not
// more. The runtime's monitor keeps what the process was started with, and needs no right for it. Threads
// that are started later have d, but for those that the monitor starts.
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
			set.Wait() // so that each is in a thread of its own
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

// SetMonitor gives the runtime's monitor thread the slack d, and no other: for a process whose own
// timers, and hand-overs between threads, are to be prompt. It needs what SetAll needs.
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

// monitor is the monitor's thread: runtime.main starts it before anything else, so it is the next
// thread after the process's first (runtime/proc.go). Numbers may have begun anew in between.
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

// threads are the numbers of this process's threads, in order.
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

// set is by a thread's own number: the folder of a task of a process has no such file.
func set(id int, d time.Duration) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", id), []byte(strconv.FormatInt(int64(d), 10)), 0)
}
