package procs

import (
	"slices"

	"github.com/forkd/forkd/internal/guest/agent/oomlog"
	"github.com/forkd/forkd/internal/leaf/oomline"
)

// others returns the process ids of the other commands.
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

// killedBy returns a text about the kill of a process. If pid was not killed, it uses the last kill
// that is not of another command: a shell that reports the end of its program has another process
// id. It returns "" if there is no such kill.
func killedBy(kills []oomlog.Kill, pid int, others []int) string {
	for _, k := range slices.Backward(kills) {
		if k.PID == pid || !slices.Contains(others, k.PID) {
			return oomline.Text(k.PID, k.Name, k.Seen)
		}
	}
	return ""
}
