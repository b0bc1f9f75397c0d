//go:build linux

package timerslack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func slackOf(t *testing.T, of string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + of + "/timerslack_ns")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// The monitor is the thread that sleeps again and again while the process is at work.
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
	tasks, _ := filepath.Glob("/proc/self/task/*")
	for _, task := range tasks {
		want := "50000"
		if filepath.Base(task) == strconv.Itoa(id) {
			want = "2000000"
		}
		if got := slackOf(t, filepath.Base(task)); got != want {
			t.Errorf("thread %s has %s ns, want %s", filepath.Base(task), got, want)
		}
	}
	if n := naps(t, id); n < 10 {
		t.Errorf("thread %d gave its CPU away %d times while the process was at work", id, n)
	}
}

// naps is how often a thread gives its CPU away of itself while this one works for a while.
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

// What has a slack of its own are the process and its children, not the programs it starts.
func TestProgramsDoNotInheritTheProcesssSlack(t *testing.T) {
	if err := SetAll(3 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := SetAll(Default); err != nil {
			t.Error(err)
		}
	}()
	tasks, _ := filepath.Glob("/proc/self/task/*")
	for _, task := range tasks {
		if got := slackOf(t, filepath.Base(task)); got != "3000000" {
			t.Errorf("thread %s has %s ns", filepath.Base(task), got)
		}
	}
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
