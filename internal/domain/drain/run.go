package drain

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

const (
	// every is the interval of checks. A sandbox whose fork began before the drain is found by them.
	every = time.Second
	// retry is the delay before a failed pause is tried again.
	retry = 30 * time.Second
	// atOnce is the number of concurrent pauses. A pause writes the guest's memory to the disk.
	atOnce = 2
	// maxFailure limits the text of a failed pause, in bytes.
	maxFailure = 500
)

// why is the reason of the pauses in events and in the audit log.
const why = "the daemon is being drained"

// Run pauses sandboxes while a drain in mode pause is on. It returns when ctx has ended and its
// pauses have ended.
func (d *Drain) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		d.Look(ctx)
		select {
		case <-tick.C:
		case <-d.wake:
		case <-ctx.Done():
			return
		}
	}
}

// Look tries to pause each running sandbox once, and returns when that is done.
func (d *Drain) Look(ctx context.Context) {
	if o := d.now(); o == nil || o.Mode != ModePause {
		return
	}
	list := d.cfg.List()
	d.forget(list)
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, atOnce)
	for _, i := range list {
		if i.Status != sandbox.StatusRunning {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		work.Go(func() {
			defer func() { <-slots }()
			if d.due(i.ID) { // asked late: a cancelled drain pauses no further sandbox
				d.pause(ctx, i)
			}
		})
	}
}

// due reports whether to pause a sandbox now.
func (d *Drain) due(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.order != nil && d.order.Mode == ModePause && d.spared[id] == 0 &&
		!d.cfg.Now().Before(d.failed[id].again)
}

// forget drops the failures of sandboxes that no longer run.
func (d *Drain) forget(list []sandbox.Info) {
	running := map[string]bool{}
	for _, i := range list {
		running[i.ID] = i.Status == sandbox.StatusRunning
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.failed {
		if !running[id] {
			delete(d.failed, id)
		}
	}
}

func (d *Drain) pause(ctx context.Context, i sandbox.Info) {
	if d.cfg.Pause == nil {
		d.note(i.ID, errors.New("this daemon cannot pause sandboxes"), retry)
		return
	}
	began := time.Now()
	_, err := d.cfg.Pause(ctx, i.ID, sandbox.PauseOptions{Why: why})
	var told *sandbox.Error
	switch {
	case err == nil:
		d.cfg.Log.Info("sandbox paused", "sandbox", i.ID, "why", why)
	case ctx.Err() != nil, errors.Is(err, sandbox.ErrClosing), errors.Is(err, sandbox.ErrNotFound),
		errors.As(err, &told) && told.Reason() == sandbox.ReasonSandboxPaused:
		return
	case errors.Is(err, sandbox.ErrBusy): // other captures are in progress
		d.note(i.ID, err, every)
		return
	default:
		d.note(i.ID, err, retry)
		d.cfg.Log.Warn("sandbox could not be paused, and runs on", "sandbox", i.ID, "err", err)
	}
	if d.cfg.Acts != nil {
		d.cfg.Acts(sandbox.Act{Action: sandbox.ActPause, By: sandbox.ByDrain, Of: i, Why: why,
			Took: time.Since(began), Err: err})
	}
}

// note records a failed pause.
func (d *Drain) note(id string, err error, wait time.Duration) {
	text := err.Error()
	if len(text) > maxFailure {
		text = text[:maxFailure]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[id] = failure{text: text, again: d.cfg.Now().Add(wait)}
}
