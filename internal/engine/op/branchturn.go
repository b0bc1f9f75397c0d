package op

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/engine/sched"
)

// AwaitBranches returns when no branch is under way, or when ctx ends.
func (o *Ops) AwaitBranches(ctx context.Context) error {
	for len(o.branches) > 0 && ctx.Err() == nil {
		sched.Sleep(ctx, 20*time.Millisecond)
	}
	return ctx.Err()
}
