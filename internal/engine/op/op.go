package op

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/images/fetcher"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/receipt"
	"github.com/forkd/forkd/internal/store/signature"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/store/volume"
)

// Config configures the operations; settings.Config documents each field.
type Config struct {
	RunDir          string           // for unnamed files of unpacked kernels
	Images          sandbox.Images   // source of the images to boot
	Concurrency     int              // concurrent restores of one fork, and concurrent resumes
	BootWait        time.Duration    // until a boot's ready signal, unless the request sets it
	RestoreTimeout  time.Duration    // for one VM
	IdentityTimeout time.Duration    // for one VM
	BranchTimeout   time.Duration    // for a capture, and again for writing it
	ChildMemory     int64            // assumed memory of one child, in bytes, for admission
	NoWorkingSet    bool             // record no working sets
	NodeKey         sandbox.NodeKey  // in the ids of new sandboxes
	Acts            sandbox.Acts     // receives the pauses of a drain
	Identity        bool             // sandboxes may get identity tokens
	Oracle          bool             // compare every snapshot with its source; for tests
	Observer        sandbox.Observer // receives the duration and the error of each operation
	Tell            sandbox.Events   // receives events about sandboxes and snapshots
	Logger          *slog.Logger     // receives completed operations and background failures
	Now             func() time.Time // wall clock
	// Keep keeps a transient snapshot until its children keep it.
	Keep func(tag string) (release func())
	// Deleted is called when a snapshot was deleted: its parents may be unused now.
	Deleted func()
	// Trust decides about the signatures of a snapshot from elsewhere. If nil, none are required.
	Trust func(all []signature.Signature, digest string) error
	// Secrets holds the tenants' secrets. If nil, the daemon keeps no secrets.
	Secrets sandbox.SecretSource
	// Fetcher fetches the rest of snapshots that are used before they are here. If nil, they arrive whole.
	Fetcher *fetcher.Client
	// AgentFile is the daemon's program of the guest's agent.
	AgentFile *launch.AgentFile
	// FetchFrom lists the registries from which tenants may have it fetched.
	FetchFrom []string
}

// Pools provides ready shells.
type Pools interface {
	// Take returns a shell for a child of the snapshot, or nil.
	Take(*launch.Source) *launch.VM
	// Count returns the number of ready shells for the snapshot.
	Count(*launch.Source) int
	// Touch creates the pool of a tag with the default size if it does not exist.
	Touch(tag string, shape vmspec.Shape)
	// Source returns an open snapshot for preparing shells, or nil.
	Source(tag string) *launch.Source
	// Wake starts filling the pools.
	Wake()
	// Rename moves the pool of a renamed snapshot to its new tag.
	Rename(tag, to string)
}

// Rooms holds the packages that the operations use.
type Rooms struct {
	Store     *snapshot.Store    // of manifests and state
	Layers    *store.Store       // of the snapshots' memory and disks
	Volumes   *volume.Store      // tenants' volumes
	Networks  *privatenets.Store // tenants' private networks
	Receipts  *receipt.Store     // receipts of the operations
	Catalog   *catalog.Catalog   // begins, lists, pins and deletes snapshots
	Sandboxes *sandboxes.Table   // list of all sandboxes
	Procs     *vmproc.Supervisor // spawns and removes VMM processes
	Launcher  *launch.Launcher   // restores VMs from snapshots
	Wires     *network.Wires     // networks of VMs
	Pools     Pools              // shells for forks
	Admission *admission.Control // admits each new VM
	Traffic   *sched.Traffic     // delays background work during forks
	// Branches holds a value for each running branch; its capacity is the limit.
	Branches chan struct{}
	// Root ends when the daemon stops waiting for requests.
	Root context.Context
	// Begin admits an operation. The caller must call done.
	Begin func(context.Context) (_ context.Context, done func(), _ error)
	// DrainFile stores an order to drain the daemon.
	DrainFile string
	// Random returns bytes of cryptographic quality.
	Random func(n int) ([]byte, error)
}

// Ops implements the operations. Its methods are safe for concurrent use.
type Ops struct {
	// Accounts reports snapshots and sandboxes, and their owners.
	Accounts Accounts
	// Drain refuses new sandboxes during maintenance, and pauses running ones.
	Drain *drain.Drain

	cfg       *Config
	store     *snapshot.Store
	layers    *store.Store
	volumes   *volume.Store
	networks  *privatenets.Store
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
	resumes   chan struct{} // a value for each running resume; others wait
	waking    atomic.Int32  // number of running and waiting resumes
	root      context.Context
	begin     func(context.Context) (_ context.Context, done func(), _ error)
	random    func(n int) ([]byte, error)
	tally     oracleTally
}

// New returns Ops. The caller keeps the configuration and must not change it during an operation.
func New(c *Config, r Rooms) *Ops {
	o := &Ops{Accounts: Accounts{r.Catalog, r.Sandboxes},
		cfg: c, store: r.Store, layers: r.Layers, receipts: r.Receipts, volumes: r.Volumes, networks: r.Networks,
		catalog: r.Catalog, sandboxes: r.Sandboxes,
		procs: r.Procs, launcher: r.Launcher, wires: r.Wires, pools: r.Pools, admission: r.Admission, traffic: r.Traffic,
		branches: r.Branches, resumes: make(chan struct{}, c.Concurrency), root: r.Root, begin: r.Begin,
		random: r.Random,
	}
	o.Drain = drain.Open(drain.Config{Path: r.DrainFile, List: r.Sandboxes.List, Pause: NewPauses(o).Pause, Acts: c.Acts,
		Now: c.Now, Log: c.Logger, Changed: r.Pools.Wake})
	return o
}
