package life

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/sandbox"
)

// Bounds of those who wait until a sandbox is paused or resumed.
const (
	maxWaitingSandbox = 256
	maxWaitingOwner   = 1024
	settleLimit       = 2 * time.Minute
)

// waitKey is whom waiting calls are counted for: a sandbox, or the owner of sandboxes.
type waitKey struct{ sandbox, owner string }

// Settled waits until a sandbox is not on its way to being paused, or back, and returns it as it is then. It returns
// ErrBusy when too many wait for that already, and ErrTimeout after two minutes.
func (w *Watch) Settled(ctx context.Context, id string) (sandbox.Info, error) {
	s, info, err := w.cfg.Sandboxes.Find(id)
	if err != nil || !inTransition(info) {
		return info, err
	}
	leave, err := w.wait(info)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit, sandbox.Errorf(sandbox.ErrTimeout, "",
		"sandbox %s was still %s after %s", info.ID, info.Status, settleLimit))
	defer cancel()
	for inTransition(info) {
		over, err := s.Turn(ctx) // the pause, or the resume, has it until its end
		if err != nil {
			return sandbox.Info{}, err
		}
		over()
		if s, info, err = w.cfg.Sandboxes.Find(id); err != nil {
			return sandbox.Info{}, err
		}
	}
	return info, nil
}

func inTransition(i sandbox.Info) bool {
	return i.Status == sandbox.StatusPausing || i.Status == sandbox.StatusResuming
}

// wait counts a call that waits for a sandbox, unless too many do; leave must be called.
func (w *Watch) wait(i sandbox.Info) (leave func(), err error) {
	one, all := waitKey{sandbox: i.ID}, waitKey{owner: i.Owner}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[one] >= maxWaitingSandbox || w.waiting[all] >= maxWaitingOwner {
		return nil, sandbox.Detailed(sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonTransitionsBusy,
			"sandbox %s is %s, and %d calls wait for that already", i.ID, i.Status, w.waiting[one]), "sandbox", i.ID)
	}
	w.waiting[one]++
	w.waiting[all]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, key := range []waitKey{one, all} {
			if w.waiting[key]--; w.waiting[key] == 0 {
				delete(w.waiting, key)
			}
		}
	}, nil
}

// Rouse waits for the end of a pause or a resume, has a paused sandbox go on that is to do so when somebody wants
// something of it, and reports whether it runs. Of many calls one resumes it.
func (w *Watch) Rouse(ctx context.Context, id string) (bool, error) {
	was, err := w.Settled(ctx, id)
	if err != nil || was.Status != sandbox.StatusPaused {
		return err == nil && was.PID != 0, err
	}
	if !was.Life.AutoResume {
		return false, nil
	}
	leave, err := w.wait(was)
	if err != nil {
		return false, err
	}
	defer leave()
	began := time.Now()
	info, err := w.cfg.Operations.Resume(ctx, was.ID)
	w.cfg.Acts(sandbox.Act{Action: sandbox.ActResume, By: sandbox.ByUse, Of: was, Took: time.Since(began), Err: err})
	return err == nil && info.PID != 0, err
}
