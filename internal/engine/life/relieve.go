package life

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// relieve pauses one unused sandbox if the host needs memory: the longest unused one. If the host
// still needs memory, a later check pauses the next one. A sandbox that cannot be paused is retried
// later, and the next one is tried now.
func (w *Watch) relieve(ctx context.Context, now time.Time) {
	if w.cfg.PauseUnused <= 0 || w.isRelieving() {
		return
	}
	why := w.cfg.Pressure()
	if why == "" {
		return
	}
	for _, i := range w.cfg.Sandboxes.Unused(w.cfg.PauseUnused) {
		if !w.claim(i.ID, now) {
			continue
		}
		if w.cfg.InUse(i.ID) {
			w.Touch(i.ID)
			w.release(i.ID)
			continue
		}
		w.setRelieving(true)
		w.work.Go(func() {
			defer w.setRelieving(false)
			defer w.release(i.ID)
			w.pause(ctx, i, due{why: why, by: sandbox.ByPressure, idle: w.cfg.PauseUnused})
		})
		return
	}
}

func (w *Watch) isRelieving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.relieving
}

func (w *Watch) setRelieving(to bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.relieving = to
}
