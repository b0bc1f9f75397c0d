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

// Operations makes the snapshots and children of a guest's fork.
type Operations interface {
	// Branch makes a snapshot of a running sandbox.
	Branch(context.Context, sandbox.BranchRequest) (sandbox.BranchResult, error)
	// Fork makes children of a snapshot.
	Fork(context.Context, sandbox.ForkRequest) (sandbox.ForkResult, error)
}

// Snapshots finds and deletes the intermediate snapshots.
type Snapshots interface {
	// Transient returns the number of transient snapshots, whose tags no client chose, and the tags
	// of the unused ones.
	Transient() (total int, unneeded []string, err error)
	// Delete deletes a snapshot without dependants. It returns sandbox.ErrConflict for one in use.
	Delete(tag string, o sandbox.DeleteOptions) error
}

// Config configures Families. All fields except Quota, Acts and Patience are required.
type Config struct {
	Limits sandbox.TreeLimits // of each tree
	// Quota is settings.Config.GuestQuota. It is called without a lock.
	Quota     func(ctx context.Context, of sandbox.Info, n int) (release func(), _ error)
	Branches  int              // limit of concurrent branches, including the API's
	RunDir    string           // the daemon's run directory
	Run       *rundir.Dir      // the same, open
	Sandboxes *sandboxes.Table // finds, lists and ends the sandboxes of trees
	// Snapshots finds and deletes the intermediate snapshots.
	Snapshots Snapshots
	// Operations branches the guest's sandbox and forks its children.
	Operations Operations
	// Notice is called when a sandbox's guest reports that its services have changed. It must not block.
	Notice func(id string)
	// LayerBytes returns the size of a disk layer in the store.
	LayerBytes func(layer.ID) (int64, error)
	// Begin admits a fork or a deletion. The caller must call done. The returned context also ends
	// with the daemon.
	Begin func(context.Context) (_ context.Context, done func(), _ error)
	// BeginCall admits a call. It may wait for as long as its guest likes, until Closing ends.
	BeginCall func() (done func(), _ error)
	// Closing ends when the daemon begins to close. Calls are then abandoned.
	Closing context.Context
	// Patience bounds the reading of one request; default 30 s.
	Patience time.Duration
	Acts     sandbox.Acts // receives the actions of guests
	Log      *slog.Logger // receives forks of guests and failures of clean-up
}

// Families manages forks made by guests, and the parents of their children. Its methods are safe
// for concurrent use.
type Families struct {
	cfg Config
	// turns has a value for each running branch for a guest. Its capacity leaves some of the
	// allowed branches to the API.
	turns chan struct{}
	sweep chan struct{} // has a value when a transient snapshot may be unused
	any   atomic.Bool   // there may be transient snapshots

	// mu guards the fields below. The only lock taken under it is Table.mu, to read the list of
	// sandboxes. It is never held across I/O, an operation, or a call of Begin.
	mu       sync.Mutex
	held     map[string]bool             // tags of running forks
	room     map[string]reservation      // by token of the fork that will fill it
	released chan struct{}               // closed and replaced when a reservation was released
	ending   map[string]int              // by root: calls of KillTree
	families map[string]*forktree.Family // by sandbox, see familyOf
	calls    map[string]int              // connections of a sandbox's guest to agentproto.ForkPort
}

// New returns empty Families. Adopt loads the families of an earlier daemon, and Run does the
// background work.
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

// Calls returns the number of running calls of a sandbox's guest.
func (f *Families) Calls(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[id]
}
