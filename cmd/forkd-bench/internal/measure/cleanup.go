package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// cleanUpLimit bounds how long a clean-up may take, at most: a daemon that is gone
// answers nobody.
const cleanUpLimit = 2 * time.Minute

// aside is a context for a clean-up, which is due when ctx has ended, too.
func aside(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
}

// patience is how long an interrupted request may go on, whose answer has the
// names of what is to be cleaned up.
const patience = 15 * time.Second

// patient ends some time after ctx has, with the same cause.
func patient(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		select {
		case <-ctx.Done():
			_ = Pause(late, limit)
			cancel(context.Cause(ctx))
		case <-late.Done():
		}
	}()
	return late, func() { cancel(nil) }
}

// Kill ends children, also when ctx has ended. One that is gone already is as good.
func Kill(ctx context.Context, c *client.Client, children []api.SandboxInfo) error {
	const atOnce = 16
	ctx, cancel := aside(ctx)
	defer cancel()
	errs := make([]error, len(children))
	var all sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i, sb := range children {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			if err := c.Kill(ctx, sb.ID); err != nil && !client.IsNotFound(err) {
				errs[i] = fmt.Errorf("sandbox %s is left behind: %w", sb.ID, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Delete removes a snapshot, also when ctx has ended, and when it is still being
// written: by a request that was interrupted. One that is gone already is as good.
func Delete(ctx context.Context, c *client.Client, tag string, opt client.DeleteOptions) error {
	ctx, cancel := aside(ctx)
	defer cancel()
	for ready := false; ; { // it has been since before the last try
		err := c.DeleteSnapshot(ctx, tag, opt)
		if err == nil || client.IsNotFound(err) {
			return nil
		}
		left := fmt.Errorf("snapshot %s is left behind: %w", tag, err)
		if ready || client.CodeOf(err) != api.CodeConflict {
			return left
		}
		info, err := c.Snapshot(ctx, tag)
		switch {
		case client.IsNotFound(err):
			return nil
		case err != nil:
			return left
		case info.Status != api.SnapshotWriting: // it may have got ready in between
			ready = true
		case Pause(ctx, 100*time.Millisecond) != nil:
			return left
		}
	}
}

// Pool sets how many shells stand ready for a tag; restore puts back what was,
// also when ctx has ended.
func Pool(ctx context.Context, c *client.Client, tag string, n int) (restore func() error, err error) {
	before, err := poolOf(ctx, c, tag)
	if err != nil {
		return nil, err
	}
	restore = func() error {
		ctx, cancel := aside(ctx)
		defer cancel()
		if err := c.SetPool(ctx, tag, before.Size); err != nil && !client.IsNotFound(err) {
			return fmt.Errorf("put the pool of %s back to %d: %w", tag, before.Size, err)
		}
		return nil
	}
	if err := c.SetPool(ctx, tag, n); err != nil {
		return nil, errors.Join(err, restore()) // it may have been done
	}
	return restore, nil
}
