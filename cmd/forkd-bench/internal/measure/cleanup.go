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

// cleanUpLimit bounds a cleanup. A daemon that has ended does not answer.
const cleanUpLimit = 2 * time.Minute

// aside returns a context for a cleanup, which must also run if ctx has ended.
func aside(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
}

// patience bounds the continuation of an interrupted request. The cleanup needs the names in its
// answer.
const patience = 15 * time.Second

// patient returns a context that ends limit after ctx, with the same cause.
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

// Kill ends children, even if ctx has ended. A child that has already ended is no error.
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

// Delete removes a snapshot, even if ctx has ended or an interrupted request is still writing it. A
// missing snapshot is no error.
func Delete(ctx context.Context, c *client.Client, tag string, opt client.DeleteOptions) error {
	ctx, cancel := aside(ctx)
	defer cancel()
	for ready := false; ; { // it was ready before the last try
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
		case info.Status != api.SnapshotWriting: // it may have become ready in between
			ready = true
		case Pause(ctx, 100*time.Millisecond) != nil:
			return left
		}
	}
}

// Pool sets the number of shells to keep ready for a tag. restore sets the former number, even if
// ctx has ended.
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
		return nil, errors.Join(err, restore()) // the daemon may have applied the request
	}
	return restore, nil
}
