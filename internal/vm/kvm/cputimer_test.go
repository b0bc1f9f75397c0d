package kvm

import (
	"os"
	"os/signal"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A busy thread is kicked as its CPU time passes.
func TestAThreadIsKickedByItsCPUTime(t *testing.T) {
	kicks := make(chan os.Signal, 100)
	signal.Notify(kicks, unix.SIGURG)
	defer signal.Stop(kicks)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the timer ends with the thread
		err := KickEvery(10 * time.Millisecond)
		var now unix.Timespec
		for err == nil && now.Nano() < int64(200*time.Millisecond) {
			err = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := len(kicks); n < 5 {
		t.Errorf("%d signals for 200 ms of CPU time, one per 10 ms wanted", n)
	}
}
