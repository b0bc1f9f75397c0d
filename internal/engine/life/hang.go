package life

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
)

// hung reports each guest with a hung kernel, once, and rolls it back if its Life asks for this.
// The VMM reports a hang after 5 s of CPU time at one place, where a working kernel never spends
// that long.
func (w *Watch) hung(ctx context.Context, now time.Time) {
	all := sandboxes.Hung(w.cfg.Sandboxes)
	for _, i := range w.newHangs(all) {
		about := i.About()
		about[sandbox.EventKeyReason] = i.Warning
		w.cfg.Tell(sandbox.EventHangs, i.ID, about)
	}
	for _, i := range all {
		if !i.Life.RestartOnHang || !w.mayRestart(i.ID, now) || !w.claim(i.ID, now) {
			continue
		}
		w.work.Go(func() {
			defer w.release(i.ID)
			w.restart(ctx, i)
		})
	}
}

// newHangs returns the hangs not reported yet.
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

const (
	// restartDelay is the delay of the second rollback of a sandbox that hangs again. It doubles
	// with each one.
	restartDelay = 30 * time.Second
	// maxRestartDelay is the longest delay of a rollback.
	maxRestartDelay = time.Hour
)

// restarts records the rollbacks of one hung sandbox.
type restarts struct {
	last  time.Time     // of the latest rollback
	delay time.Duration // of the next one, from last
}

// mayRestart reports whether a sandbox that hangs may be rolled back now. The base of a sandbox
// that hangs again may hang each time, and its guest uses a CPU until the hang is reported, so the
// delays grow. After a run of twice the delay, the delays restart.
func (w *Watch) mayRestart(id string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.restarts[id]
	since := now.Sub(r.last)
	return since < 0 || since >= r.delay // less than 0: the clock was set back
}

// restarted records a rollback.
func (w *Watch) restarted(id string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.restarts[id]
	next := restartDelay
	if r.delay > 0 && now.Sub(r.last) < 2*r.delay {
		next = min(2*r.delay, maxRestartDelay)
	}
	w.restarts[id] = restarts{last: now, delay: next}
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
		w.restarted(i.ID, w.cfg.Now())
		w.cfg.Log.Warn("sandbox rolled back: its guest's kernel hung", "sandbox", i.ID, "snapshot", tag, "at", i.Hang)
		return
	}
	w.cfg.Log.Error("sandbox hangs and could not be rolled back", "sandbox", i.ID, "snapshot", tag, "err", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.later[i.ID] = w.cfg.Now().Add(retry)
}
