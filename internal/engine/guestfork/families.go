package guestfork

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/guestfork/forktree"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/rundir"
)

// Operations are what a fork by a guest is made of.
type Operations interface {
	// Branch makes a snapshot of a running sandbox.
	Branch(context.Context, sandbox.BranchRequest) (sandbox.BranchResult, error)
	// Fork makes children of a snapshot.
	Fork(context.Context, sandbox.ForkRequest) (sandbox.ForkResult, error)
}

// Snapshots are where those in between are found and deleted.
type Snapshots interface {
	// Transient returns how many there are that nobody asked for by their tags, and the
	// tags of those among them that nothing needs.
	Transient() (total int, unneeded []string, err error)
	// Delete deletes one that nothing depends on; of one in use it returns sandbox.ErrConflict.
	Delete(tag string, o sandbox.DeleteOptions) error
}

// Config is what Families are made of. All fields are needed but Quota, Acts and Patience.
type Config struct {
	Limits sandbox.TreeLimits // of each tree
	// Quota is settings.Config.GuestQuota. It is called without a lock.
	Quota      func(ctx context.Context, of sandbox.Info, n int) (release func(), _ error)
	Branches   int         // how many branches may be under way at once, those of the API included
	RunDir     string      // the daemon's run directory
	Run        *rundir.Dir // the same, open
	Sandboxes  *sandboxes.Table
	Snapshots  Snapshots
	Operations Operations
	// LayerBytes is what a layer of a disk takes of the store.
	LayerBytes func(layer.ID) (int64, error)
	// Begin admits a fork or a deletion; done must be called. The context that it returns
	// ends with the daemon, too.
	Begin func(context.Context) (_ context.Context, done func(), _ error)
	// BeginCall admits a call, which may wait for as long as its guest likes, until Closing ends.
	BeginCall func() (done func(), _ error)
	// Closing ends when the daemon begins to close: calls are left then.
	Closing context.Context
	// Patience is how long the reading of one request may take; default 30 s.
	Patience time.Duration
	Acts     sandbox.Acts // is told what guests have done
	Log      *slog.Logger
}

// Families are the forks that guests make, and whose children are whose. Its methods are
// safe for concurrent use.
type Families struct {
	cfg Config
	// turns has a value for each branch for a guest under way: some of the
	// branches that may be are left to the API.
	turns chan struct{}
	sweep chan struct{} // has a value when a transient snapshot may be needed no more
	any   atomic.Bool   // there may be transient snapshots

	// mu guards what follows. Under it only the list of sandboxes is asked (Table.mu); it is
	// never held across I/O, an operation, or a call of Begin.
	mu       sync.Mutex
	held     map[string]bool             // tags of forks under way
	room     map[string]reservation      // by token of the fork that will fill it
	released chan struct{}               // closed, and made anew, when room was given back
	ending   map[string]int              // by root: calls of KillTree
	families map[string]*forktree.Family // by sandbox, see familyOf
	calls    map[string]int              // connections of a sandbox's guest to agentproto.ForkPort
}

// New makes Families that know nobody: Adopt brings back those of an earlier daemon, Run
// does the work in the background.
func New(c Config) *Families {
	if c.Quota == nil {
		c.Quota = func(context.Context, sandbox.Info, int) (func(), error) { return func() {}, nil }
	}
	if c.Acts == nil {
		c.Acts = func(sandbox.Act) {}
	}
	if c.Patience == 0 {
		c.Patience = callTimeout
	}
	return &Families{
		cfg: c, turns: make(chan struct{}, max(1, c.Branches/2)), sweep: make(chan struct{}, 1),
		held: map[string]bool{}, room: map[string]reservation{}, released: make(chan struct{}), ending: map[string]int{},
		families: map[string]*forktree.Family{}, calls: map[string]int{},
	}
}

// Calls is how many calls of a sandbox's guest are under way.
func (f *Families) Calls(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[id]
}
