package procs

import (
	"fmt"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/agent/oomlog"
)

// killed says how the kernel ended a process for want of memory; empty: it did not. A shell that reports such an end
// of its program has no process of that id itself.
func (t *Table) killed(p *Process) string {
	return killedBy(t.oom.Since(p.began), p.child.Pid, t.others(p))
}

// others are the process ids of the other commands.
func (t *Table) others(p *Process) (pids []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for o := range t.all {
		if o != p {
			pids = append(pids, o.child.Pid)
		}
	}
	return pids
}

// killedBy is the text of the kill of a process, or else of the last one that is not another command's.
func killedBy(kills []oomlog.Kill, pid int, others []int) string {
	for _, k := range slices.Backward(kills) {
		if k.PID == pid || !slices.Contains(others, k.PID) {
			return fmt.Sprintf("killed by the guest's kernel: out of memory (process %d, %s, %s)", k.PID, k.Name,
				k.Seen.UTC().Format(time.RFC3339))
		}
	}
	return ""
}
