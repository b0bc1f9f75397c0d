package execclient

import (
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

func TestShellCodeCountsSignalsAsLinuxDoes(t *testing.T) {
	for _, c := range []struct {
		status string
		code   int32
		exited bool
		want   int
	}{
		{"exit status 0", 0, true, 0},
		{"exit status 255", 255, true, 255},
		{"signal: killed", -1, false, 137},
		{"signal: terminated", -1, false, 143},
		{"signal: bus error (core dumped)", -1, false, 135},
		{"signal: user defined signal 2", -1, false, 140},
		{"signal: signal 31", -1, false, 159},
		{"signal: no such name", -1, false, 137},
	} {
		end := End{&process.ProcessEvent_EndEvent{Status: c.status, ExitCode: c.code, Exited: c.exited}}
		if got := end.ShellCode(); got != c.want {
			t.Errorf("%s: %d, want %d", c.status, got, c.want)
		}
	}
}
