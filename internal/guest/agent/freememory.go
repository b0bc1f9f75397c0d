package agent

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Free memory is reported to the host once much was used (package freepages), and there is no timer
// that looks: programs are looked at when they have ended, interpreters after an evaluation.

// longEval is what an evaluation takes at least that could have used much memory.
const longEval = 20 * time.Millisecond

// evaluated is called after each evaluation, which may have used memory and freed it. A short one is
// not worth a look.
func (a *Agent) evaluated(took time.Duration) {
	if took >= longEval {
		a.free.Look(a.interpretersPeak() - a.had.Load())
	}
}

// reportsOff is for the time before a snapshot: clones begin without reports. What interpreters have
// by then is none of their use. A guest whose reports go on is still worth a snapshot, so this never fails.
func (a *Agent) reportsOff() error {
	for _, i := range a.interp.About() {
		// The peak is now what it has; without that a clone reports earlier than it is worth.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", i.Pid), []byte("5"), 0)
	}
	a.had.Store(a.interpretersPeak())
	if err := a.free.Off(); err != nil {
		a.cfg.Log("end reports of free memory: %v", err)
	}
	return nil
}

// interpretersPeak is the most memory that an interpreter had at a time, in bytes.
func (a *Agent) interpretersPeak() (had int64) {
	for _, i := range a.interp.About() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.Pid))
		if err == nil {
			had = max(had, peakOf(status))
		}
	}
	return had
}

// peakOf reads proc_pid_status(5).
func peakOf(status []byte) int64 {
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	if f := bytes.Fields(rest); len(f) > 0 {
		if kib, err := strconv.ParseInt(string(f[0]), 10, 53); err == nil && kib > 0 {
			return kib << 10
		}
	}
	return 0
}
