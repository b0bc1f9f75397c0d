package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/idempotency"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// madeOnce is the result of a fork with an idempotency key. It has ids only, so that stored results stay small.
type madeOnce struct {
	children []madeChild
	ready    int           // ready shells
	armed    time.Duration // until the last child was at its gate
	wall     time.Duration // until the last child was ready
}

// madeChild is one child of a stored fork.
type madeChild struct {
	index int
	id    string // empty for a failed child
	err   error
}

// forker runs a fork, or returns the sandboxes of an earlier one.
type forker func(context.Context, sandbox.ForkRequest) (sandbox.ForkResult, error)

// once returns the forker for a request. With a key, a repeated request gets the sandboxes of the first. It waits for a
// first request in progress. A request that made no sandbox, or whose client disconnected, may run again.
func (f *forkRoutes) once(ctx context.Context, in *forkInput) (forker, error) {
	if in.Key == "" {
		return f.run, nil
	}
	body, err := json.Marshal(in.Body)
	if err != nil {
		return nil, err
	}
	who := principal.From(ctx)
	// Each key of a tenant is a caller of its own, because other keys may have other quotas.
	caller := who.Tenant + "\x00" + who.KeyID
	return func(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
		earlier, end, err := f.repeats.Join(ctx, caller, in.Key, body, time.Now)
		switch {
		case errors.Is(err, idempotency.ErrMismatch), errors.Is(err, idempotency.ErrKey):
			return sandbox.ForkResult{}, apierror.New(api.CodeInvalid, "", "Idempotency-Key: %v", err)
		case errors.Is(err, idempotency.ErrFull):
			return sandbox.ForkResult{}, apierror.New(api.CodeBusy, "", "%v", err)
		case err != nil:
			return sandbox.ForkResult{}, err
		case earlier != nil:
			return f.again(ctx, req, *earlier), nil
		}
		var made *madeOnce
		defer func() { end(made) }()
		res, err := f.run(ctx, req)
		if err == nil {
			made = storedFork(res)
		}
		return res, err
	}, nil
}

func storedFork(res sandbox.ForkResult) *madeOnce {
	m := &madeOnce{ready: res.PoolReady, armed: res.ArmedWall, wall: res.ReadyWall}
	for _, c := range res.Children {
		m.children = append(m.children, madeChild{c.Index, c.Info.ID, c.Err})
	}
	return m
}

// again returns the result of an earlier fork. Sandboxes that have ended since are failed children.
func (f *forkRoutes) again(ctx context.Context, req sandbox.ForkRequest, m madeOnce) sandbox.ForkResult {
	res := sandbox.ForkResult{PoolReady: m.ready, ArmedWall: m.armed, ReadyWall: m.wall}
	for _, c := range m.children {
		child := sandbox.Child{Index: c.index, Err: c.err}
		if c.err == nil {
			if child.Info, child.Err = f.engine(ctx).Get(c.id); child.Err != nil {
				child.Err = fmt.Errorf("sandbox %s of the first request has ended: %w", c.id, sandbox.ErrGuestGone)
			}
		}
		if res.Children = append(res.Children, child); req.Each != nil {
			req.Each(child)
		}
	}
	return res
}
