//go:build linux

// Package timerslack sets how late the kernel may let threads' sleeps end (prctl(2)), so that a Go
// program has fewer of them: the runtime's monitor looks every 20 µs at a process that has begun to
// do something, and on a CPU that emulates that is half of what it does. It owns nothing. VMMs and
// the guest's agent have it. The trap: programs inherit it from the thread that starts them.
package timerslack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
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
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(tasks) == 0 {
		return errors.Join(err, errors.New("timer slack: no threads in /proc/self/task"))
	}
	for _, t := range tasks {
		// By its own number: the folder of a task of a process has no such file.
		err := os.WriteFile("/proc/"+filepath.Base(t)+"/timerslack_ns", []byte(strconv.FormatInt(int64(d), 10)), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("timer slack: %w", err)
		}
	}
	return nil
}
