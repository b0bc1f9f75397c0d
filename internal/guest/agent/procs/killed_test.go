package procs

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/oomlog"
)

func TestWhoWasKilled(t *testing.T) {
	kills := []oomlog.Kill{{PID: 5, Name: "a", Seen: time.Unix(1, 0)}, {PID: 9, Name: "python3", Seen: time.Unix(2, 0)}}
	for _, c := range []struct {
		pid    int
		others []int
		want   string
	}{
		{9, nil, "killed by the guest's kernel: out of memory (process 9, python3, 1970-01-01T00:00:02Z)"},
		{1, nil, "(process 9, python3"}, {1, []int{9}, "(process 5, a"}, {1, []int{5, 9}, ""},
	} {
		if got := killedBy(kills, c.pid, c.others); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("process %d beside %v: %q, want %q", c.pid, c.others, got, c.want)
		}
	}
}

// The end of a command reports it if SIGKILL ended the command or its shell's program.
func TestTheEndSaysOutOfMemory(t *testing.T) {
	p := &Process{killed: func() string { return "out of memory" }}
	for status, want := range map[unix.WaitStatus]string{
		unix.WaitStatus(unix.SIGKILL): "out of memory", 137 << 8: "out of memory", 1 << 8: "exit status 1",
		unix.WaitStatus(unix.SIGTERM): "signal: terminated", 0: "",
	} {
		end := p.endEvent(status).GetEnd()
		if end.GetError() != want {
			t.Errorf("status %d: %q, want %q", status, end.GetError(), want)
		}
		if status == unix.WaitStatus(unix.SIGKILL) && end.GetStatus() != "signal: killed" {
			t.Errorf("the status is %q", end.GetStatus())
		}
	}
}
