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

// Operations provides the operations a Watch calls.
type Operations interface {
	Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error)
	ResumeOnce(ctx context.Context, id string) (_ sandbox.Info, tried bool, _ error)
}

// Rollback puts a sandbox back to a snapshot.
type Rollback func(ctx context.Context, id, tag string) (sandbox.Info, error)

// Config configures a Watch. All fields are required.
type Config struct {
	Sandboxes  *sandboxes.Table // its deadlines, idle times, hangs, stalls and killed processes are checked
	Operations Operations       // pauses and resumes sandboxes
	Rollback   Rollback         // repairs a sandbox with a hung kernel
	// Tell reports hangs of guests and stalls.
	Tell sandbox.Events
	// Begin admits an operation. The caller must call done.
	Begin func(context.Context) (_ context.Context, done func(), _ error)
	// InUse reports whether a sandbox's guest waits for the host, which counts as use.
	InUse func(id string) bool
	// PauseUnused is how long a sandbox must be unused to be paused under memory pressure. If 0,
	// unused sandboxes are not paused.
	PauseUnused time.Duration
	// Pressure returns why the host needs memory, or an empty string. It is called for each check.
	Pressure func() string
	// Acts receives the actions done because of time or traffic.
	Acts sandbox.Acts
	// Now is the wall clock.
	Now func() time.Time
	Log *slog.Logger // receives what a Watch did to sandboxes
}

// Watch enforces deadlines and idle limits of sandboxes. Its methods are safe for concurrent use.
type Watch struct {
	cfg Config

	mu sync.Mutex // guards the fields below; no other lock is taken under it
	// busy contains the sandboxes being ended or paused.
	busy map[string]bool
	// later holds the times, by Config.Now, to retry failed pauses.
	later map[string]time.Time
	// relieving is set while a sandbox is paused because of memory pressure. They are paused one at
	// a time.
	relieving bool
	// hangs holds the reported hangs, by sandbox.
	hangs map[string]string
	// stalls holds the sandboxes reported as stalled.
	stalls map[string]bool
	// restarts holds the rollbacks of hung sandboxes, for the delay of the next one.
	restarts map[string]restarts
	work     sync.WaitGroup
}

// New returns a Watch. Its method Watch does the work.
func New(c Config) *Watch {
	return &Watch{cfg: c, busy: map[string]bool{}, later: map[string]time.Time{}, hangs: map[string]string{},
		restarts: map[string]restarts{}}
}

const (
	// every is the interval of checks, so also the maximum delay of due actions.
	every = time.Second
	// retry is the delay before a failed pause is retried.
	retry = 30 * time.Second
)

// Watch checks the sandboxes until ctx ends, and then waits for the actions it has started.
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

// Look performs all actions due now, and returns when they are done.
func (w *Watch) Look(ctx context.Context) {
	w.look(ctx)
	w.work.Wait()
}

func (w *Watch) look(ctx context.Context) {
	w.forget()
	now := w.cfg.Now()
	for _, i := range w.cfg.Sandboxes.WithDeadline() {
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
	w.stalled()
	sandboxes.NoteKills(w.cfg.Sandboxes)
}

// due is an action due on a sandbox.
type due struct {
	why  string        // empty if no action is due
	by   string        // sandbox.ByDeadline and the others
	idle time.Duration // idle time that made it due; 0 for its deadline
	cold bool          // a pause keeps only its disk
}

// dueOf returns the action due on a sandbox. A paused one is due only to be killed at its deadline.
func dueOf(i sandbox.Info, now time.Time) due {
	paused := i.Status == sandbox.StatusPaused
	switch l := i.Life; {
	case i.Status == sandbox.StatusPausing, i.Status == sandbox.StatusResuming:
		return due{}
	case l.Passed(now) && !(paused && l.AtEnd == sandbox.AtEndPause):
		return due{why: "its deadline has passed", by: sandbox.ByDeadline}
	case !paused && l.Idle > 0 && i.Unused >= l.Idle:
		return due{why: "unused for " + l.Idle.String(), by: sandbox.ByIdleness, idle: l.Idle}
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

// pause pauses a sandbox, or records why it failed.
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
	case errors.As(err, &told) && told.Reason() == sandbox.ReasonSandboxPaused: // paused by another request
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

// kill ends a sandbox if it is still due.
func (w *Watch) kill(ctx context.Context, i sandbox.Info, d due) {
	_, done, err := w.cfg.Begin(ctx)
	if err != nil {
		return
	}
	defer done()
	_, now, err := w.cfg.Sandboxes.Find(i.ID)
	if err != nil || dueOf(now, w.cfg.Now()).why == "" { // its time was extended
		return
	}
	began := time.Now()
	if w.cfg.Sandboxes.Kill(i.ID) == nil {
		w.cfg.Acts(sandbox.Act{Action: sandbox.ActKill, By: d.by, Of: i, Why: d.why, Took: time.Since(began)})
		w.cfg.Log.Info("sandbox ended", "sandbox", i.ID, "why", d.why)
	}
}

// claim marks a sandbox as busy, unless it is busy already or waits for a retry.
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

// now cancels the delay of a retry, so that the sandbox is tried as soon as it is due.
func (w *Watch) now(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.later, id)
}

// forget drops the records of removed sandboxes.
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

// SetLife changes how long a sandbox may run, counted from now, and the action at the end.
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
	w.now(info.ID) // retry without delay after a new request
	return s.SetLife(func(old sandbox.Life) (sandbox.Life, error) { return old.Change(l, w.cfg.Now()) })
}

// Kill ends a sandbox, running, paused or failed, and waits until it has been removed completely.
// Concurrent callers both succeed; later ones get ErrNotFound.
func (w *Watch) Kill(ctx context.Context, id string) error {
	_, done, err := w.cfg.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return w.cfg.Sandboxes.Kill(id)
}

// Touch records a use of a sandbox, so that it is not idle.
func (w *Watch) Touch(id string) {
	if s := w.cfg.Sandboxes.Lookup(id); s != nil {
		s.Touch()
	}
}

// Rouse is called for every request that needs a sandbox's guest. It waits while the sandbox is
// being paused or resumed, resumes a paused one if its Life has AutoResume, and reports whether it
// runs. Concurrent callers cause only one resume.
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

// Settle waits while a sandbox is being paused or resumed, and returns its state afterwards. It
// does not resume a paused one.
func (w *Watch) Settle(ctx context.Context, id string) (sandbox.Info, error) {
	ctx, done, err := w.cfg.Begin(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer done()
	return sandboxes.Settle(ctx, w.cfg.Sandboxes, id)
}
