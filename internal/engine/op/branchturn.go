package op

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// AwaitBranches waits until no branch is running, or until ctx ends.
func (o *Ops) AwaitBranches(ctx context.Context) error {
	for len(o.branches) > 0 && ctx.Err() == nil {
		ctxsleep.For(ctx, 20*time.Millisecond)
	}
	return ctx.Err()
}

// slot takes a slot for a branch. A pause waits for one: many sandboxes may become idle at the same
// time, and a pause is not urgent.
func (w *branchOp) slot(ctx context.Context) error {
	if w.stay {
		select {
		case w.e.branches <- struct{}{}:
		case <-ctx.Done():
			return sandbox.Ended(ctx, context.Cause(ctx))
		}
	} else {
		select {
		case w.e.branches <- struct{}{}:
		default:
			return sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonBranchesBusy, "%d branches are under way already",
				cap(w.e.branches))
		}
	}
	w.undo.Push(func() { <-w.e.branches })
	return nil
}
