package life

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// relieve has one sandbox that nobody uses paused, if the host needs memory: the one that was not used for the
// longest. The next has its turn with a later look, if the host needs memory still. One that cannot be paused
// is tried again later, and the next one now.
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
