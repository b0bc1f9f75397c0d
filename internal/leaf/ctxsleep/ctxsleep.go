// Package ctxsleep waits for some time, or until a context ends. It keeps no timer after it has returned. Loops with
// pauses call it. The trap: it returns false at the end of the context, and says nothing about the cause.
package ctxsleep

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It reports whether ctx has not ended. A d of 0 or less does not wait.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
