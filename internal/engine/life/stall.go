package life

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
)

// stalled reports each sandbox that waits for room for its disks, once, and again when it runs. It does not see stalls
// shorter than the interval of the checks.
func (w *Watch) stalled() {
	begun, ended := w.newStalls(sandboxes.Stalled(w.cfg.Sandboxes))
	for _, i := range begun {
		w.cfg.Tell(sandbox.EventStalled, i.ID, i.About())
	}
	for _, id := range ended {
		s := w.cfg.Sandboxes.Lookup(id)
		if s == nil {
			continue
		}
		if i := s.Info(); i.Status == sandbox.StatusRunning {
			w.cfg.Tell(sandbox.EventContinued, id, i.About())
		}
	}
}

// newStalls returns the stalls not reported yet, and the sandboxes whose stall is over.
func (w *Watch) newStalls(all []sandbox.Info) (begun []sandbox.Info, ended []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := make(map[string]bool, len(all))
	for _, i := range all {
		if now[i.ID] = true; !w.stalls[i.ID] {
			begun = append(begun, i)
		}
	}
	for id := range w.stalls {
		if !now[id] {
			ended = append(ended, id)
		}
	}
	w.stalls = now
	return begun, ended
}
