package life

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
)

// Operations are what a Watch has done.
type Operations interface {
	Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error)
	ResumeOnce(ctx context.Context, id string) (_ sandbox.Info, tried bool, _ error)
}

// Rollback puts a sandbox back to a snapshot.
type Rollback func(ctx context.Context, id, tag string) (sandbox.Info, error)

// Config is what a Watch is made of. All fields are needed.
type Config struct {
	Sandboxes  *sandboxes.Table
	Operations Operations
	Rollback   Rollback
	// Tell reports hangs of guests.
	Tell sandbox.Events
	// Begin admits an operation; done must be called.
	Begin func(context.Context) (_ context.Context, done func(), _ error)
	// InUse reports whether a sandbox's guest waits for the host, which counts as use.
	InUse func(id string) bool
	// PauseUnused is for how long a sandbox must not have been used to be paused when Pressure tells of any; 0:
	// none is.
	PauseUnused time.Duration
	// Pressure says why the host needs memory; empty: it does not. It is asked with every look.
	Pressure func() string
	// Acts is told what was done as time passed, or for traffic.
	Acts sandbox.Acts
	// Now is the wall clock.
	Now func() time.Time
	Log *slog.Logger
}

// Watch keeps time for sandboxes. Its methods are safe for concurrent use.
type Watch struct {
	cfg Config

	mu sync.Mutex // guards what follows; no other lock is taken under it
	// busy are the sandboxes that are being ended or paused.
	busy map[string]bool
	// later is when one that could not be paused is tried again, by Config.Now.
	later map[string]time.Time
	// relieving: a sandbox is being paused since the host needs memory. One at a time is.
	relieving bool
	// hangs are the hangs that were reported, by sandbox.
	hangs map[string]string
	// restarts are the rollbacks of sandboxes that hung, for the delay of the next one.
	restarts map[string]restarts
	work     sync.WaitGroup
}

// New makes a Watch. Run does its work.
func New(c Config) *Watch {
	return &Watch{cfg: c, busy: map[string]bool{}, later: map[string]time.Time{}, hangs: map[string]string{},
		restarts: map[string]restarts{}}
}

const (
	// every is how often the list is looked at: what is due is done so much later at most.
	every = time.Second
	// retry is when a pause that failed is tried again.
	retry = 30 * time.Second
)

// Watch looks at the list until ctx ends, and waits for what it has begun then.
func (w *Watch) Watch(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer w.work.Wait()
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Look does what is due now, and returns when it is done.
func (w *Watch) Look(ctx context.Context) {
	w.look(ctx)
	w.work.Wait()
}

func (w *Watch) look(ctx context.Context) {
	w.forget()
	now := w.cfg.Now()
	for _, i := range w.cfg.Sandboxes.Mortal() {
		d := dueOf(i, now)
		if d.why == "" || !w.claim(i.ID, now) {
			continue
		}
		if d.idle > 0 && w.cfg.InUse(i.ID) {
			w.Touch(i.ID)
			w.release(i.ID)
			continue
		}
		w.work.Go(func() {
			defer w.release(i.ID)
			w.end(ctx, i, d)
		})
	}
	w.relieve(ctx, now)
	w.hung(ctx, now)
}

// due is what is to be done to a sandbox.
type due struct {
	why  string        // empty: nothing
	by   string        // sandbox.ByDeadline and the others
	idle time.Duration // it is for having been idle for so long; 0: for its deadline
	cold bool          // a pause keeps its disk alone
}

// dueOf is what is due of a sandbox. One that is paused is due only to be killed at its deadline.
func dueOf(i sandbox.Info, now time.Time) due {
	paused := i.Status == sandbox.StatusPaused
	switch l := i.Life; {
	case i.Status == sandbox.StatusPausing, i.Status == sandbox.StatusResuming:
		return due{}
	case l.Passed(now) && !(paused && l.AtEnd == sandbox.AtEndPause):
		return due{why: "its deadline has passed", by: sandbox.ByDeadline}
	case !paused && l.Idle > 0 && i.Unused >= l.Idle:
		return due{why: "nobody has used it for " + l.Idle.String(), by: sandbox.ByIdleness, idle: l.Idle}
	}
	return due{}
}

// end kills or pauses a sandbox.
func (w *Watch) end(ctx context.Context, i sandbox.Info, d due) {
	if i.Life.AtEnd != sandbox.AtEndPause {
		w.kill(ctx, i, d)
		return
	}
	d.cold = i.Life.FilesystemOnly
	w.pause(ctx, i, d)
}

// pause pauses a sandbox, or notes why it could not be.
func (w *Watch) pause(ctx context.Context, i sandbox.Info, d due) {
	began := time.Now()
	opt := sandbox.PauseOptions{IdleFor: d.idle, Why: d.why, FilesystemOnly: d.cold}
	_, err := w.cfg.Operations.Pause(ctx, i.ID, opt)
	act := sandbox.Act{Action: sandbox.ActPause, By: d.by, Of: i, Why: d.why, Took: time.Since(began), Err: err}
	var told *sandbox.Error
	switch {
	case err == nil:
		w.cfg.Acts(act)
		w.cfg.Log.Info("sandbox paused", "sandbox", i.ID, "why", d.why)
	case ctx.Err() != nil, errors.Is(err, sandbox.ErrClosing), errors.Is(err, sandbox.ErrNotFound),
		errors.Is(err, sandboxes.ErrInUse):
	case errors.As(err, &told) && told.Reason() == sandbox.ReasonSandboxPaused: // somebody else has
	default:
		w.cfg.Acts(act)
		w.cfg.Log.Warn("sandbox could not be paused, and runs on", "sandbox", i.ID, "err", err)
		if s := w.cfg.Sandboxes.Lookup(i.ID); s != nil {
			s.Unpaused(err)
		}
		w.mu.Lock()
		w.later[i.ID] = w.cfg.Now().Add(retry)
		w.mu.Unlock()
	}
}

// kill ends a sandbox that is still due.
func (w *Watch) kill(ctx context.Context, i sandbox.Info, d due) {
	_, done, err := w.cfg.Begin(ctx)
	if err != nil {
		return
	}
	defer done()
	_, now, err := w.cfg.Sandboxes.Find(i.ID)
	if err != nil || dueOf(now, w.cfg.Now()).why == "" { // it was given more time
		return
	}
	began := time.Now()
	if w.cfg.Sandboxes.Kill(i.ID) == nil {
		w.cfg.Acts(sandbox.Act{Action: sandbox.ActKill, By: d.by, Of: i, Why: d.why, Took: time.Since(began)})
		w.cfg.Log.Info("sandbox ended", "sandbox", i.ID, "why", d.why)
	}
}

// claim takes a sandbox that nothing is being done to, unless it is to be tried later.
func (w *Watch) claim(id string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, failed := w.later[id]; failed {
		if ahead := at.Sub(now); ahead > 0 && ahead <= retry { // more: the clock was set back
			return false
		}
		delete(w.later, id)
	}
	if w.busy[id] {
		return false
	}
	w.busy[id] = true
	return true
}

func (w *Watch) release(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, id)
}

// now has a sandbox that could not be paused tried again as soon as it is due.
func (w *Watch) now(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.later, id)
}

// forget drops what is known of sandboxes that are gone.
func (w *Watch) forget() {
	w.mu.Lock()
	maps.DeleteFunc(w.restarts, func(id string, _ restarts) bool { return w.cfg.Sandboxes.Lookup(id) == nil })
	failed := slices.Collect(maps.Keys(w.later))
	w.mu.Unlock()
	for _, id := range failed {
		if w.cfg.Sandboxes.Lookup(id) == nil {
			w.now(id)
		}
	}
}

// SetLife changes for how long a sandbox may run, counted from now, and what becomes of it then.
func (w *Watch) SetLife(ctx context.Context, id string, l sandbox.Life) (sandbox.Info, error) {
	_, done, err := w.cfg.Begin(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer done()
	s, info, err := w.cfg.Sandboxes.Find(id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if info.Status == sandbox.StatusFailed {
		_, _, err = w.cfg.Sandboxes.Running(id)
		return sandbox.Info{}, err
	}
	w.now(info.ID) // what is asked for anew is tried anew
	return s.SetLife(func(old sandbox.Life) (sandbox.Life, error) { return old.Change(l, w.cfg.Now()) })
}

// Kill ends a sandbox, running, paused or failed, and waits until nothing of it is left.
// Of two callers at once both succeed; later ones get ErrNotFound.
func (w *Watch) Kill(ctx context.Context, id string) error {
	_, done, err := w.cfg.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return w.cfg.Sandboxes.Kill(id)
}

// Touch notes that somebody uses a sandbox: it is not idle.
func (w *Watch) Touch(id string) {
	if s := w.cfg.Sandboxes.Lookup(id); s != nil {
		s.Touch()
	}
}

// Rouse decides for every request that needs a sandbox's guest. It waits while the sandbox is being paused or resumed,
// resumes a paused one if its Life has AutoResume, and reports whether it runs. Many callers cause one resume.
func (w *Watch) Rouse(ctx context.Context, id string) (bool, error) {
	info, err := w.Settle(ctx, id)
	if err != nil || info.PID != 0 || !info.Life.AutoResume {
		return err == nil && info.PID != 0 && info.Status != sandbox.StatusFailed, err
	}
	was, began := info, time.Now()
	info, tried, err := w.cfg.Operations.ResumeOnce(ctx, was.ID)
	if tried {
		w.cfg.Acts(sandbox.Act{Action: sandbox.ActResume, By: sandbox.ByUse, Of: was, Took: time.Since(began), Err: err})
	}
	return err == nil && info.PID != 0, err
}

// Settle waits while a sandbox is being paused or resumed, and returns it as it is then. It wakes none.
func (w *Watch) Settle(ctx context.Context, id string) (sandbox.Info, error) {
	ctx, done, err := w.cfg.Begin(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer done()
	return sandboxes.Settle(ctx, w.cfg.Sandboxes, id)
}
