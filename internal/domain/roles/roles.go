package roles

import (
	"context"
	"io"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/store/receipt"
)

// Engine holds a value for each role.
type Engine struct {
	Snapshots Snapshots      // creates, lists and deletes snapshots
	Diffs     Diffs          // compares snapshots
	Sandboxes Sandboxes      // forks, lists and ends sandboxes
	Branches  Branches       // makes snapshots of running sandboxes, and returns to them
	Receipts  Receipts       // records of operations
	Guests    sandbox.Guests // runs programs in sandboxes
	Pools     Pools          // shells for forks
	Hosts     Hosts          // resources of the host
	Networks  Networks       // network policies and network use
	Labels    Labels         // labels, tags and retention
}

// Snapshots makes and stores snapshots.
type Snapshots interface {
	Catalog
	Deletion
	Creation
	Travels
}

// Catalog lists snapshots.
type Catalog interface {
	ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error)
	SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error)
	// SnapshotBrief reads only this snapshot.
	SnapshotBrief(tag string) (sandbox.SnapshotBrief, error)
}

// Deletion deletes snapshots.
type Deletion interface {
	DeleteSnapshot(ctx context.Context, tag string, opt sandbox.DeleteOptions) error
}

// Creation makes and checks snapshots and their layers.
type Creation interface {
	CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	// ParentMemoryMiB returns the guest memory of the VM that CreateSnapshot would boot for req.
	ParentMemoryMiB(ctx context.Context, req sandbox.CreateRequest) (int, error)
	DeriveSnapshot(ctx context.Context, req sandbox.DeriveRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	VerifySnapshot(ctx context.Context, tag string) (sandbox.VerifyReport, error)
	CompactSnapshot(ctx context.Context, tag, to string, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	CollectLayers(ctx context.Context, dryRun bool) (sandbox.CollectReport, error)
}

// Travels carries snapshots between daemons.
type Travels interface {
	// OpenBlobs opens a snapshot for another daemon. The caller closes it.
	OpenBlobs(ctx context.Context, req sandbox.ExportRequest) (sandbox.Blobs, error)
	ExportSnapshot(ctx context.Context, req sandbox.ExportRequest, w io.Writer) error
	ImportSnapshot(ctx context.Context, req sandbox.ImportRequest, r io.Reader) (sandbox.SnapshotInfo, error)
}

// Diffs compares snapshots.
type Diffs interface {
	DiffSnapshots(ctx context.Context, req sandbox.DiffRequest) (sandbox.SnapshotDiff, error)
}

// Sandboxes forks, lists and ends sandboxes.
type Sandboxes interface {
	Forks
	Listing
	Accounts
	Lifetimes
	Trees
	Pauses
	Moves
	Consoles
}

// Forks forks snapshots into sandboxes.
type Forks interface {
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
}

// Listing lists sandboxes.
type Listing interface {
	List() []sandbox.Info
	Get(id string) (sandbox.Info, error)
}

// Accounts adds up the sandboxes of an owner, for quotas.
type Accounts interface {
	// Holdings returns an owner's running sandboxes: their number, and the MiB of their guests'
	// memory.
	Holdings(owner string) (n, memoryMiB int)
	// OverlayBytes returns the bytes an owner's sandboxes have written to their disks.
	OverlayBytes(owner string) int64
}

// Lifetimes ends sandboxes, at once or at a deadline.
type Lifetimes interface {
	Kill(ctx context.Context, id string) error
	SetLife(ctx context.Context, id string, l sandbox.Life) (sandbox.Info, error)
}

// Trees ends a sandbox with its descendants.
type Trees interface {
	KillTree(ctx context.Context, id string) (ended []string, err error)
}

// Pauses pauses and resumes sandboxes.
type Pauses interface {
	Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error)
	Resume(ctx context.Context, id string) (sandbox.Info, error)
}

// Moves moves paused sandboxes between daemons.
type Moves interface {
	// Handover describes a paused sandbox for another daemon, or gives it up.
	Handover(ctx context.Context, id string, req sandbox.HandoverRequest) (sandbox.Handover, error)
	// Take takes a sandbox from another daemon.
	Take(ctx context.Context, req sandbox.TakeRequest) (sandbox.Info, error)
}

// Consoles reads the consoles and the memory use of sandboxes.
type Consoles interface {
	// Console and FollowConsole return text with marks of package linetime.
	Console(id string) (io.ReadCloser, error)
	// FollowConsole returns nil when the VM has ended.
	FollowConsole(ctx context.Context, id string, lines int, write func([]byte) error) error
	Memory(id string) (sandbox.MemoryUse, error)
}

// Branches makes snapshots of running sandboxes, rolls sandboxes back to them, puts descendants in
// their place, and copies groups.
type Branches interface {
	Captures
	Promotions
	Groups
}

// Captures makes snapshots of running sandboxes, and rolls sandboxes back to them.
type Captures interface {
	Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error)
	Rollback(ctx context.Context, id, tag string) (sandbox.Info, error)
}

// Promotions puts descendants in the place of sandboxes.
type Promotions interface {
	Promote(ctx context.Context, req sandbox.PromoteRequest) (sandbox.Promotion, error)
}

// Groups copies the sandboxes of private networks.
type Groups interface {
	// ForkGroup copies all running sandboxes of a private network.
	ForkGroup(ctx context.Context, req sandbox.GroupForkRequest) (sandbox.GroupForkResult, error)
}

// Receipts returns records of operations.
type Receipts interface {
	Receipt(kind receipt.Kind, of string) (receipt.Receipt, error)
	Receipts(f receipt.Filter) ([]receipt.Receipt, error)
}

// Pools keeps shells (pre-created VMMs) ready.
type Pools interface {
	SetPool(ctx context.Context, tag string, size int) error
	Pools() []sandbox.PoolStatus
}

// Networks reads and sets network policies, and reports network use.
type Networks interface {
	Network(id string) (sandbox.Network, error)
	SetNetwork(ctx context.Context, id string, req sandbox.NetworkRequest) (sandbox.Network, error)
	Flows(ctx context.Context, id string) ([]sandbox.NetFlow, error)
	// NetworkLog calls write with one JSON object per line, without the newline.
	NetworkLog(ctx context.Context, id string, follow bool, write func([]byte) error) error
}

// Hosts reports the host's resources for sandboxes.
type Hosts interface {
	Capacity() (sandbox.Capacity, error)
}

// Labels changes the labels of sandboxes and snapshots, applies the rules in them, and changes the tags of snapshots.
type Labels interface {
	LabelSandbox(ctx context.Context, id string, change labels.Change) (sandbox.Info, error)
	LabelSnapshot(ctx context.Context, tag string, change labels.Change) (sandbox.SnapshotInfo, error)
	RenameSnapshot(ctx context.Context, tag, to string) (sandbox.SnapshotInfo, error)
	PruneSnapshots(ctx context.Context, req sandbox.PruneRequest) (sandbox.PruneReport, error)
}
