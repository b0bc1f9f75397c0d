package sandboxes

import "github.com/forkd/forkd/internal/domain/sandbox"

// Hung returns the running sandboxes of t with a hung guest kernel.
func Hung(t *Table) (out []sandbox.Info) {
	return seen(t, func(i sandbox.Info) bool { return i.Hang != "" })
}

// Stalled returns the sandboxes of t that wait for room for their disks.
func Stalled(t *Table) (out []sandbox.Info) {
	return seen(t, func(i sandbox.Info) bool { return i.Stall != "" })
}

// seen returns the sandboxes with a VM for which keep is true.
func seen(t *Table, keep func(sandbox.Info) bool) (out []sandbox.Info) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		if s.state != running || s.vm == nil || s.pausing {
			continue
		}
		if i := s.seenLocked(); keep(i) {
			out = append(out, i)
		}
	}
	return out
}
