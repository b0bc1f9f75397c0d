//go:build linux

package timerslack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
