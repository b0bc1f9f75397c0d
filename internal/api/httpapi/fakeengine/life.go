package fakeengine

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
)

// lives has the engine's methods about lifetimes.
type lives struct{ e *Engine }

// Pause marks a sandbox as paused. Its guest is kept for Resume.
func (l lives) Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error) {
	capture := "capture"
	if opt.FilesystemOnly {
		capture = "freeze"
	}
	recordSteps(ctx, "turn", capture, "write", "commit", "settle")
	e := l.e
	b, err := e.entry(id)
	if err == nil && opt.FilesystemOnly && e.snapshots[b.info.SnapshotTag].Image == "" {
		err = sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonColdPause,
			"sandbox %s cannot be paused with its disk alone: it was booted from a kernel file, which is not stored", id)
	}
	if err == nil {
		b, err = e.live(id)
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := forkReceipt(b.info, e.snapshots[b.info.SnapshotTag])
	r.Op, r.Cold = receipt.Pause, opt.FilesystemOnly
	e.recordLocked(r, e.Now)
	b.info.Status, b.info.PID, b.info.Cold = sandbox.StatusPaused, 0, opt.FilesystemOnly
	if opt.FilesystemOnly {
		return b.info, nil
	}
	b.info.PausedIn, b.info.PausedHash = fmt.Sprintf("pause-%s-00000001", b.info.ID), "sha256:feed"
	return b.info, nil
}

// Resume resumes a paused sandbox.
func (l lives) Resume(ctx context.Context, id string) (sandbox.Info, error) {
	recordSteps(ctx, "turn", "boot", "restore", "populate", "start", "identity", "settle")
	e := l.e
	b, err := e.entry(id)
	if err != nil {
		return sandbox.Info{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.info.Status == sandbox.StatusPaused && e.Drain.On() {
		return sandbox.Info{}, drain.Refusal()
	}
	switch b.info.Status {
	case sandbox.StatusFailed:
		return sandbox.Info{}, fmt.Errorf("sandbox %s: %s: %w", id, b.info.Reason, sandbox.ErrGuestGone)
	case sandbox.StatusPaused:
		held, values, err := sandbox.RenewSecrets(e.Secrets, b.info.Owner, b.info.Secrets)
		if err != nil {
			return sandbox.Info{}, err
		}
		b.info.Secrets, b.secrets = held, values
		r := forkReceipt(b.info, e.snapshots[b.info.SnapshotTag])
		r.Op, r.Cold = receipt.Resume, b.info.Cold
		e.recordLocked(r, e.Now)
		b.info.Status, b.info.PID, b.info.Life = sandbox.StatusRunning, 5000+b.info.Index, b.info.Life.Resumed(clock(e))
	}
	return b.info, nil
}

// SetLife records the lifetime of a sandbox. Only EndDue acts on it.
func (v lives) SetLife(_ context.Context, id string, l sandbox.Life) (sandbox.Info, error) {
	e := v.e
	b, err := e.entry(id)
	if err != nil {
		return sandbox.Info{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.info.Status == sandbox.StatusFailed {
		return sandbox.Info{}, fmt.Errorf("sandbox %s: %s: %w", id, b.info.Reason, sandbox.ErrGuestGone)
	}
	if l, err = b.info.Life.Change(l, clock(e)); err != nil {
		return sandbox.Info{}, err
	}
	b.info.Life = l
	return b.info, nil
}

func clock(e *Engine) time.Time {
	if e.Clock != nil {
		return e.Clock()
	}
	return e.Now
}

// EndDue ends the sandboxes with a deadline in the past, and returns their number.
func EndDue(e *Engine) (ended int) {
	for _, i := range e.List() {
		if i.Life.Passed(clock(e)) && e.Kill(context.Background(), i.ID) == nil {
			ended++
		}
	}
	return ended
}
