//go:build linux

package timerslack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wantSlack checks each thread of this process.
func wantSlack(t *testing.T, want func(thread int) string) {
	t.Helper()
	ids, err := threads()
	if err != nil || len(ids) < 2 {
		t.Fatalf("threads %d, %v", ids, err)
	}
	for _, id := range ids {
		if got := slackOf(t, id); got != want(id) {
			t.Errorf("thread %d has %s ns, want %s", id, got, want(id))
		}
	}
}

// The monitor is the thread that sleeps repeatedly while the process is busy.
func TestOnlyTheMonitorHasTheSlack(t *testing.T) {
	if err := SetMonitor(2 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	id, err := monitor()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := SetAll(Default); err != nil {
			t.Error(err)
		}
	}()
	wantSlack(t, func(thread int) string {
		if thread == id {
			return "2000000"
		}
		return "50000"
	})
	if n := naps(t, id); n < 10 {
		t.Errorf("thread %d gave its CPU away %d times while the process was at work", id, n)
	}
}

// Each of n threads has the new slack, and the monitor its initial one.
func TestWorkersHaveASlackOfTheirOwn(t *testing.T) {
	if err := SetAll(3 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := SetAll(Default); err != nil {
			t.Error(err)
		}
	}()
	const n = 5
	if err := SetWorkers(time.Millisecond, n); err != nil {
		t.Fatal(err)
	}
	id, err := monitor()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := threads()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, thread := range ids {
		count[slackOf(t, thread)]++
	}
	if got := slackOf(t, id); got != "3000000" || count["1000000"] < n {
		t.Errorf("the monitor has %s ns; threads by what they have: %v", got, count)
	}
}

func slackOf(t *testing.T, thread int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", thread))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// naps counts how often a thread voluntarily gives up its CPU while this one is busy for some time.
func naps(t *testing.T, id int) int {
	t.Helper()
	count := func() (n int) {
		b, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(id) + "/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "\nvoluntary_ctxt_switches:")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	for begin := time.Now(); time.Since(begin) < 500*time.Millisecond; { // elapses: it is the work
	}
	return count() - before
}

// The process's slack applies to the process and its children, not to programs that it starts.
func TestProgramsDoNotInheritTheProcesssSlack(t *testing.T) {
	if err := SetAll(3 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := SetAll(Default); err != nil {
			t.Error(err)
		}
	}()
	wantSlack(t, func(int) string { return "3000000" })
	for want, start := range map[string]func(func() error) error{
		"3000000": func(f func() error) error { return f() },
		"50000":   func(f func() error) error { return Starting(Default, f) },
	} {
		var out strings.Builder
		cmd := exec.Command("cat", "/proc/self/timerslack_ns")
		cmd.Stdout = &out
		if err := errors.Join(start(cmd.Start), cmd.Wait()); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(out.String()); got != want {
			t.Errorf("a program has %s ns, want %s", got, want)
		}
	}
}
