package op

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/receipt"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Config is how operations are carried out; settings.Config says what each is for.
type Config struct {
	RunDir          string
	Images          sandbox.Images
	Concurrency     int
	BootWait        time.Duration
	RestoreTimeout  time.Duration
	IdentityTimeout time.Duration
	BranchTimeout   time.Duration
	ChildMemory     int64
	NoWorkingSet    bool
	Oracle          bool
	Observer        sandbox.Observer
	Tell            sandbox.Events
	Logger          *slog.Logger
	Now             func() time.Time
}

// Pools are the shells that stand ready.
type Pools interface {
	// Take hands out a shell for a child of the snapshot, or nil.
	Take(*launch.Source) *launch.VM
	// Count is the number of shells that stand ready for the snapshot.
	Count(*launch.Source) int
	// Touch makes the pool of a tag exist with the default size.
	Touch(tag string, shape vmspec.Shape)
	// Source hands out an open snapshot that shells are prepared with, or nil.
	Source(tag string) *launch.Source
	// Wake has the pools filled up.
	Wake()
}

// Rooms are what operations work with.
type Rooms struct {
	Store     *snapshot.Store
	Layers    *store.Store // of the snapshots' memory and disks
	Receipts  *receipt.Store
	Catalog   *catalog.Catalog
	Sandboxes *sandboxes.Table
	Procs     *vmproc.Supervisor
	Launcher  *launch.Launcher
	Wires     *network.Wires
	Pools     Pools
	Admission *admission.Control
	Traffic   *sched.Traffic
	// Branches has a value for each branch under way; its room is how many there may be.
	Branches chan struct{}
	// Root ends when the daemon can wait no longer.
	Root context.Context
	// Begin admits an operation; done must be called.
	Begin func(context.Context) (_ context.Context, done func(), _ error)
	// Random returns bytes of cryptographic quality.
	Random func(n int) ([]byte, error)
}

// Ops are the operations. Their methods are safe for concurrent use.
type Ops struct {
	Accounts

	cfg       *Config
	store     *snapshot.Store
	layers    *store.Store
	receipts  *receipt.Store
	catalog   *catalog.Catalog
	sandboxes *sandboxes.Table
	procs     *vmproc.Supervisor
	launcher  *launch.Launcher
	wires     *network.Wires
	pools     Pools
	admission *admission.Control
	traffic   *sched.Traffic
	branches  chan struct{}
	resumes   chan struct{} // a value for each resume under way; others wait
	waking    atomic.Int32  // resumes under way, and those that wait
	root      context.Context
	begin     func(context.Context) (_ context.Context, done func(), _ error)
	random    func(n int) ([]byte, error)
	tally     oracleTally
}

// New makes Ops. The configuration is the caller's, who does not change it while one is under way.
func New(c *Config, r Rooms) *Ops {
	return &Ops{Accounts: Accounts{r.Catalog, r.Sandboxes},
		cfg: c, store: r.Store, layers: r.Layers, receipts: r.Receipts, catalog: r.Catalog, sandboxes: r.Sandboxes,
		procs: r.Procs, launcher: r.Launcher, wires: r.Wires, pools: r.Pools, admission: r.Admission, traffic: r.Traffic,
		branches: r.Branches, resumes: make(chan struct{}, c.Concurrency), root: r.Root, begin: r.Begin, random: r.Random,
	}
}
