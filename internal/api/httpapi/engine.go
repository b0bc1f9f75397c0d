package httpapi

import (
	"context"
	"io"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
)

// Engine is the domain, as used by this package.
type Engine interface {
	Snapshots
	Diffs
	Sandboxes
	Branches
	Receipts
	sandbox.Guests
	Pools
	Hosts
	Networks
	Labels
}

// Snapshots makes and stores snapshots.
type Snapshots interface {
	CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	// ParentMemoryMiB returns the guest memory of the VM CreateSnapshot would boot for req.
	ParentMemoryMiB(ctx context.Context, req sandbox.CreateRequest) (int, error)
	DeriveSnapshot(ctx context.Context, req sandbox.DeriveRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error)
	SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error)
	// SnapshotBrief reads only this snapshot.
	SnapshotBrief(tag string) (sandbox.SnapshotBrief, error)
	DeleteSnapshot(ctx context.Context, tag string, opt sandbox.DeleteOptions) error
	VerifySnapshot(ctx context.Context, tag string) (sandbox.VerifyReport, error)
	CompactSnapshot(ctx context.Context, tag, to string, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	CollectLayers(ctx context.Context, dryRun bool) (sandbox.CollectReport, error)
	// OpenBlobs opens a snapshot for another daemon. The caller closes it.
	OpenBlobs(ctx context.Context, req sandbox.ExportRequest) (sandbox.Blobs, error)
	ExportSnapshot(ctx context.Context, req sandbox.ExportRequest, w io.Writer) error
	ImportSnapshot(ctx context.Context, req sandbox.ImportRequest, r io.Reader) (sandbox.SnapshotInfo, error)
}

// Sandboxes forks, lists and ends sandboxes.
type Sandboxes interface {
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	List() []sandbox.Info
	// Holdings returns an owner's running sandboxes: their number, and the MiB of their guests'
	// memory.
	Holdings(owner string) (n, memoryMiB int)
	// OverlayBytes returns the bytes an owner's sandboxes have written to their disks.
	OverlayBytes(owner string) int64
	Get(id string) (sandbox.Info, error)
	Kill(ctx context.Context, id string) error
	KillTree(ctx context.Context, id string) (ended []string, err error)
	// Console and FollowConsole return text with marks of package linetime.
	Console(id string) (io.ReadCloser, error)
	// FollowConsole returns nil when the VM has ended.
	FollowConsole(ctx context.Context, id string, lines int, write func([]byte) error) error
	Memory(id string) (sandbox.MemoryUse, error)
	Lives
}

// Branches makes snapshots of running sandboxes, rolls sandboxes back to them, puts descendants in
// their place, and copies groups.
type Branches interface {
	Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error)
	Rollback(ctx context.Context, id, tag string) (sandbox.Info, error)
	Promote(ctx context.Context, req sandbox.PromoteRequest) (sandbox.Promotion, error)
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

// Image is a built image in the daemon's store.
type Image struct {
	Name        string    // unique in the store
	Digest      string    // sha256:<hex>
	SizeBytes   int64     // sum of its files
	CreatedAt   time.Time // when this copy came into the store
	Kernel      string    // release of its kernel
	MemoryMiB   int       // default memory of a guest
	VCPUs       int       // default number of virtual CPUs
	Description string    // as in its recipe; may be empty
	Start       string    // command line of its service; may be empty

	Container *api.ImageContainer // nil for an image of a recipe
}

// Images is the daemon's image store. Its errors wrap the sentinels of package sandbox.
type Images interface {
	ListImages(ctx context.Context) ([]Image, error)
	GetImage(ctx context.Context, name string) (Image, error)
	RemoveImage(ctx context.Context, name string) error
	// ImportImage reads a tar stream to its end. If digest is not empty, the content must match it.
	// On failure ImportImage leaves no files.
	ImportImage(ctx context.Context, name, digest string, tar io.Reader) (Image, error)
}
