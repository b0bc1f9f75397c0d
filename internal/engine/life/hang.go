package life

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/sandbox"
)

// hung reports each guest whose kernel hangs, once, and rolls back those whose life says so. The VMM reports a
// hang after 5 s of CPU time at one place, which no kernel that works spends there.
func (w *Watch) hung(ctx context.Context, now time.Time) {
	all := sandboxes.Hung(w.cfg.Sandboxes)
	for _, i := range w.newHangs(all) {
		about := i.About()
		about[sandbox.EventKeyReason] = i.Warning
		w.cfg.Tell(sandbox.EventHangs, i.ID, about)
	}
	for _, i := range all {
		if !i.Life.RestartOnHang || !w.claim(i.ID, now) {
			continue
		}
		w.work.Go(func() {
			defer w.release(i.ID)
			w.restart(ctx, i)
		})
	}
}

// newHangs are the hangs that were not reported yet.
func (w *Watch) newHangs(all []sandbox.Info) (out []sandbox.Info) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := make(map[string]string, len(all))
	for _, i := range all {
		if now[i.ID] = i.Hang; w.hangs[i.ID] != i.Hang {
			out = append(out, i)
		}
	}
	w.hangs = now
	return out
}

// restart rolls a sandbox back to its base.
func (w *Watch) restart(ctx context.Context, i sandbox.Info) {
	began := time.Now()
	tag, _ := i.Base()
	_, err := w.cfg.Rollback(ctx, i.ID, tag)
	if ctx.Err() != nil {
		return
	}
	w.cfg.Acts(sandbox.Act{Action: sandbox.ActRollback, By: sandbox.ByHang, Of: i, Why: i.Warning, Took: time.Since(began),
		Err: err})
	if err == nil {
		w.cfg.Log.Warn("sandbox rolled back: its guest's kernel hung", "sandbox", i.ID, "snapshot", tag, "at", i.Hang)
		return
	}
	w.cfg.Log.Error("sandbox hangs and could not be rolled back", "sandbox", i.ID, "snapshot", tag, "err", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.later[i.ID] = w.cfg.Now().Add(retry)
}
