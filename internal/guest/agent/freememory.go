package agent

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// The guest reports free memory to the host after it has used much memory (package freepages). No
// timer checks for this: programs are checked when they have ended, interpreters after an
// evaluation.

// longEval is the minimum time of an evaluation that may have used much memory.
const longEval = 20 * time.Millisecond

// evaluated is called after each evaluation, which may have used memory and freed it. It ignores
// short evaluations.
func (a *Agent) evaluated(took time.Duration) {
	if took >= longEval {
		a.free.Look(a.interpretersPeak() - a.had.Load())
	}
}

// reportsOff switches reports off before a snapshot, so clones start without reports. Memory that
// interpreters have by then does not count as used by the clone. It never fails: a snapshot of a
// guest with reports still works.
func (a *Agent) reportsOff() error {
	for _, i := range a.interp.About() {
		// Reset the peak to the current use. Otherwise a clone would report too early.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", i.Pid), []byte("5"), 0)
	}
	a.had.Store(a.interpretersPeak())
	if err := a.free.Off(); err != nil {
		a.cfg.Log("end reports of free memory: %v", err)
	}
	return nil
}

// interpretersPeak returns the highest peak memory of all interpreters, in bytes.
func (a *Agent) interpretersPeak() (had int64) {
	for _, i := range a.interp.About() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.Pid))
		if err == nil {
			had = max(had, peakOf(status))
		}
	}
	return had
}

// peakOf reads the peak from the text of proc_pid_status(5).
func peakOf(status []byte) int64 {
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	if f := bytes.Fields(rest); len(f) > 0 {
		if kib, err := strconv.ParseInt(string(f[0]), 10, 53); err == nil && kib > 0 {
			return kib << 10
		}
	}
	return 0
}
