package execclient

import (
	"fmt"
	"strings"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// End is how a program ended.
type End struct {
	event *process.ProcessEvent_EndEvent
}

// Status returns a description such as "exit status 1" or "signal: killed".
func (e End) Status() string { return guesttext.Of(e.event.GetStatus()).String() }

// KilledBy returns the reason if the guest's kernel killed the program for lack of memory,
// otherwise "".
func (e End) KilledBy() string {
	if said := guesttext.Of(e.event.GetError()).String(); strings.HasPrefix(said, agentproto.KilledByKernel) {
		return said
	}
	return ""
}

// ExitCode returns the program's own exit code, or -1 if a signal ended it.
func (e End) ExitCode() int { return int(e.event.GetExitCode()) }

// ShellCode returns the code that a shell reports: 128+n if signal n ended the program.
func (e End) ShellCode() int {
	if e.event.GetExited() && e.ExitCode() >= 0 {
		return e.ExitCode()
	}
	return signalBase + signalNumber(e.Status())
}

const (
	signalBase = 128
	sigkill    = 9
)

// signals are the guest's names for its first signals, in the order of Linux's signal numbers.
// Other systems number theirs differently.
var signals = [...]string{
	1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 5: "trace/breakpoint trap", 6: "aborted",
	7: "bus error",
	8: "floating point exception", sigkill: "killed", 10: "user defined signal 1", 11: "segmentation fault",
	12: "user defined signal 2", 13: "broken pipe", 14: "alarm clock", 15: "terminated",
}

// signalNumber finds the number in a status such as "signal: killed (core dumped)". It returns
// SIGKILL for unknown signals.
func signalNumber(status string) int {
	name := strings.TrimPrefix(status, "signal: ")
	var n int
	if _, err := fmt.Sscanf(name, "signal %d", &n); err == nil && n > 0 && n < signalBase {
		return n
	}
	for n, known := range signals {
		if known != "" && strings.HasPrefix(name, known) {
			return n
		}
	}
	return sigkill
}
