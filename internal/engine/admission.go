package engine

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// begin admits a request. The returned context ends with the caller's context or with the engine.
// The caller must call done.
func (e *Engine) begin(ctx context.Context) (_ context.Context, done func(), _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, nil, sandbox.ErrClosing
	}
	e.inflight.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.root, func() { cancel(context.Cause(e.root)) })
	return ctx, func() {
		stop()
		cancel(nil)
		e.inflight.Done()
	}, nil
}

// beginCall admits a call that may run until background ends: Close does not wait for it before
// then.
func (e *Engine) beginCall() (done func(), _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, sandbox.ErrClosing
	}
	e.workers.Add(1) // not after closing is set, under mu: Close waits later
	return e.workers.Done, nil
}

// Close stops the engine. New requests get ErrClosing. Running requests may finish until ctx ends
// and are then cancelled. Shells are ended. Running VMs are left for the next engine, or ended if
// Config.KillOnClose is set. A second Close waits for the first.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		<-e.closed
		return nil
	}
	e.closing = true
	e.mu.Unlock()
	defer close(e.closed)
	err := e.finishRequests(ctx)
	e.stopBackground()
	e.workers.Wait()
	e.FlushReceipts()
	e.pools.Close()
	e.sandboxes.Release(e.cfg.KillOnClose)
	e.procs.Release()
	e.wires.Close()
	e.abandon(sandbox.ErrClosing)
	e.kvm.Close()
	e.home.Close()
	return err
}

// finishRequests waits for running requests. When ctx ends, it cancels them and waits for their
// clean-up.
func (e *Engine) finishRequests(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		e.inflight.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		e.abandon(sandbox.ErrClosing)
		<-idle
		return fmt.Errorf("close engine: requests were cut off: %w", context.Cause(ctx))
	}
}
