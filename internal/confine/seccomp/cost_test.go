//go:build linux

package seccomp_test

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
)

func init() {
	calls["cost"] = func() error {
		const n = 1 << 20
		runtime.LockOSThread()
		for name, c := range map[string][2]uintptr{"KVM_RUN": {unix.SYS_IOCTL, 0xae80}, "getpid": {unix.SYS_GETPID, 0}} {
			start := threadTime()
			for range n {
				unix.RawSyscall(c[0], ^uintptr(0), c[1], 0)
			}
			fmt.Printf("%s %.0f ns of CPU\n", name, float64(threadTime()-start)/n)
		}
		return nil
	}
}

// threadTime returns the thread's CPU time, in nanoseconds.
func threadTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return t.Nano()
}

// BenchmarkCost measures the filters' cost for a call made at each exit of a guest, and for a call without
// conditions.
func BenchmarkCost(b *testing.B) {
	for _, filter := range []string{"none", "vm", "vcpu", "jailed"} {
		out, _ := spawned(b, seccomp.On, filter, "cost")
		b.Logf("%s: %s", filter, out)
	}
}
