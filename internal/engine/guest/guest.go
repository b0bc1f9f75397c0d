package guest

import (
	"context"
	"log/slog"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

// Config configures Calls.
type Config struct {
	Sandboxes *sandboxes.Table // finds the VM of a request
	// Begin admits a request. The caller must call done.
	Begin func(context.Context) (_ context.Context, done func(), _ error)
	// Closing ends when the daemon begins to close. Followed consoles end then.
	Closing context.Context
	Layers  string         // directory of the layers
	Traffic *sched.Traffic // pauses background work during first answers
	// Populate maps the pages of a first request, recorded in a file of the snapshot in dir. The
	// file may be missing.
	Populate func(ctx context.Context, m *vmproc.VM, dir, file string)
	// SnapshotDir returns the directory of a tag's snapshot, for Populate.
	SnapshotDir func(tag string) string
	// Wake resumes a sandbox paused deliberately, and reports whether it runs. If nil, no sandboxes
	// are woken. It is not called for a sandbox stalled for lack of disk space.
	Wake func(ctx context.Context, id string) (bool, error)
	// Observer receives the duration and the error of each Exec and Eval.
	Observer sandbox.Observer
	Now      func() time.Time // wall clock
	Tell     sandbox.Events   // receives events of services
	Log      *slog.Logger     // receives failures of background work
}

// Calls serves requests to running sandboxes. Its methods are safe for concurrent use.
type Calls struct {
	cfg Config
	// Notices reads the services of guests that report a change.
	Notices *Notices
}

// New returns Calls.
func New(c Config) *Calls { return &Calls{c, NewNotices(c)} }
