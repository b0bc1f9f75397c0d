package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// Fork makes n children of a snapshot. It returns an error unless all of them run.
func Fork(ctx context.Context, c *client.Client, tag string, n int) (client.ForkResult, error) {
	return ForkAs(ctx, c, api.CreateSandboxesRequest{SnapshotTag: tag, N: &n})
}

// ForkAs makes the children of a request. It returns an error unless all of them run.
func ForkAs(ctx context.Context, c *client.Client, req api.CreateSandboxesRequest) (client.ForkResult, error) {
	res, err := forkSome(ctx, c, req, func(api.SandboxInfo) {})
	if err != nil {
		return res, err
	}
	if failed := res.Failed(); len(failed) > 0 {
		return res, errors.Join(fmt.Errorf("fork %s: %s", req.SnapshotTag, failed[0].Error), Kill(ctx, c, res.OK()))
	}
	return res, nil
}

// ForkSome makes n children of a snapshot, some of which may fail. It calls each with every child
// as soon as its result is known. If ctx ends, ForkSome waits a little longer for the
// answer and ends the children, because only the answer has their IDs.
func ForkSome(ctx context.Context, c *client.Client, tag string, n int,
	each func(api.SandboxInfo)) (client.ForkResult, error) {
	return forkSome(ctx, c, api.CreateSandboxesRequest{SnapshotTag: tag, N: &n}, each)
}

func forkSome(ctx context.Context, c *client.Client, req api.CreateSandboxesRequest,
	each func(api.SandboxInfo)) (client.ForkResult, error) {
	late, cancel := patient(ctx, patience)
	defer cancel()
	res, err := c.ForkEach(late, req, each)
	if err == nil && ctx.Err() != nil {
		return res, errors.Join(context.Cause(ctx), Kill(ctx, c, res.OK()))
	}
	return res, err
}

// AwaitPool waits until n shells are ready for a tag.
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

// Pause waits for d, or until ctx ends.
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

// Eval runs Python in a sandbox. It returns an error for an exception.
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
