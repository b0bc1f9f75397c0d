package sandboxes

import "github.com/forkd/forkd/internal/domain/sandbox"

// Hung returns the running sandboxes of t with a hung guest kernel.
func Hung(t *Table) (out []sandbox.Info) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		if s.state != running || s.vm == nil || s.pausing {
			continue
		}
		if i := s.seenLocked(); i.Hang != "" {
			out = append(out, i)
		}
	}
	return out
}
