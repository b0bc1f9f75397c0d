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

// Fork makes n children of a snapshot, all of which must live.
func Fork(ctx context.Context, c *client.Client, tag string, n int) (client.ForkResult, error) {
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: tag, N: &n})
	if err != nil {
		return res, err
	}
	if failed := res.Failed(); len(failed) > 0 {
		Kill(ctx, c, res.OK())
		return res, fmt.Errorf("fork %s: %s", tag, failed[0].Error)
	}
	return res, nil
}

// Kill ends children, also when ctx has ended. One that is gone already is as good.
func Kill(ctx context.Context, c *client.Client, children []api.SandboxInfo) {
	const atOnce = 16
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, sb := range children {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			_ = c.Kill(ctx, sb.ID)
		})
	}
	all.Wait()
}

// Pool sets how many shells stand ready for a tag; restore puts back what was.
func Pool(ctx context.Context, c *client.Client, tag string, n int) (restore func(), err error) {
	before, err := poolOf(ctx, c, tag)
	if err != nil {
		return nil, err
	}
	if err := c.SetPool(ctx, tag, n); err != nil {
		return nil, err
	}
	return func() { _ = c.SetPool(context.WithoutCancel(ctx), tag, before.Size) }, nil
}

// AwaitPool waits until n shells stand ready for a tag.
func AwaitPool(ctx context.Context, c *client.Client, tag string, n int) error {
	for {
		p, err := poolOf(ctx, c, tag)
		if err != nil || p.Ready >= n {
			return err
		}
		if err := Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func poolOf(ctx context.Context, c *client.Client, tag string) (api.Pool, error) {
	pools, err := c.Pools(ctx)
	if err != nil {
		return api.Pool{}, err
	}
	for _, p := range pools {
		if p.Tag == tag {
			return p, nil
		}
	}
	return api.Pool{}, nil
}

// AwaitReady waits until a snapshot that is being written is ready.
func AwaitReady(ctx context.Context, c *client.Client, tag string) error {
	for {
		info, err := c.Snapshot(ctx, tag)
		switch {
		case err != nil:
			return err
		case info.Status == api.SnapshotReady:
			return nil
		case info.Status == api.SnapshotFailed:
			return fmt.Errorf("snapshot %s cannot be used", tag)
		}
		if err := Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// Pause waits, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Eval runs Python in a sandbox; an exception is an error.
func Eval(ctx context.Context, c *client.Client, id, code string, limit time.Duration) (string, error) {
	r, err := c.Eval(ctx, id, api.EvalRequest{Code: code, TimeoutSecs: limit.Seconds()})
	switch {
	case err != nil:
		return "", err
	case r.Error != nil && *r.Error != "":
		return "", errors.New("in the guest: " + *r.Error)
	case r.Result == nil:
		return "", nil
	}
	return *r.Result, nil
}
