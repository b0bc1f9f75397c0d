package guest

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

// Config is what Calls are made of.
type Config struct {
	Sandboxes *sandboxes.Table
	// Begin admits a request; done must be called.
	Begin func(context.Context) (_ context.Context, done func(), _ error)
	// Closing ends when the daemon begins to close: nobody follows a console then.
	Closing context.Context
	Layers  string // directory of the layers
	Traffic *sched.Traffic
	// Populate maps what a first request touches, by a file of the snapshot in dir, which need not be there.
	Populate    func(ctx context.Context, m *vmproc.VM, dir, file string)
	SnapshotDir func(tag string) string
	// Wake has a sandbox that was paused on purpose go on, and reports whether it does. nil:
	// there are none such. It is not asked of one that stands still for want of room.
	Wake     func(ctx context.Context, id string) (bool, error)
	Observer sandbox.Observer
	Now      func() time.Time
}

// Calls are requests to running sandboxes. Their methods are safe for concurrent use.
type Calls struct{ cfg Config }

// New makes Calls.
func New(c Config) *Calls { return &Calls{c} }
