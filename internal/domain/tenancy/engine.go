package tenancy

import (
	"context"
	"io"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/store/receipt"
)

// Engine is the engine behind the views. Package httpapi uses the same interface.
type Engine interface {
	snapshots
	sandboxes
	sandbox.Guests
	networks
	Receipt(kind receipt.Kind, of string) (receipt.Receipt, error)
	Receipts(f receipt.Filter) ([]receipt.Receipt, error)
	SetPool(ctx context.Context, tag string, size int) error
	Pools() []sandbox.PoolStatus
	Capacity() (sandbox.Capacity, error)
	LabelSandbox(ctx context.Context, id string, change labels.Change) (sandbox.Info, error)
	LabelSnapshot(ctx context.Context, tag string, change labels.Change) (sandbox.SnapshotInfo, error)
	RenameSnapshot(ctx context.Context, tag, to string) (sandbox.SnapshotInfo, error)
	PruneSnapshots(ctx context.Context, req sandbox.PruneRequest) (sandbox.PruneReport, error)
}

type snapshots interface {
	CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	// ParentMemoryMiB returns the guest memory of the VM that CreateSnapshot would boot for req.
	ParentMemoryMiB(ctx context.Context, req sandbox.CreateRequest) (int, error)
	DeriveSnapshot(ctx context.Context, req sandbox.DeriveRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error)
	SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error)
	SnapshotBrief(tag string) (sandbox.SnapshotBrief, error)
	DeleteSnapshot(ctx context.Context, tag string, opt sandbox.DeleteOptions) error
	VerifySnapshot(ctx context.Context, tag string) (sandbox.VerifyReport, error)
	CompactSnapshot(ctx context.Context, tag, to string, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	CollectLayers(ctx context.Context, dryRun bool) (sandbox.CollectReport, error)
	OpenBlobs(ctx context.Context, req sandbox.ExportRequest) (sandbox.Blobs, error)
	ExportSnapshot(ctx context.Context, req sandbox.ExportRequest, w io.Writer) error
	ImportSnapshot(ctx context.Context, req sandbox.ImportRequest, r io.Reader) (sandbox.SnapshotInfo, error)
	DiffSnapshots(ctx context.Context, req sandbox.DiffRequest) (sandbox.SnapshotDiff, error)
}

type sandboxes interface {
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	List() []sandbox.Info
	// Holdings returns the number and memory of an owner's running sandboxes.
	Holdings(owner string) (n, memoryMiB int)
	// OverlayBytes returns the bytes that an owner's sandboxes have written to their disks.
	OverlayBytes(owner string) int64
	Get(id string) (sandbox.Info, error)
	Kill(ctx context.Context, id string) error
	KillTree(ctx context.Context, id string) (ended []string, err error)
	Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error)
	Resume(ctx context.Context, id string) (sandbox.Info, error)
	SetLife(ctx context.Context, id string, l sandbox.Life) (sandbox.Info, error)
	Handover(ctx context.Context, id string, req sandbox.HandoverRequest) (sandbox.Handover, error)
	Take(ctx context.Context, req sandbox.TakeRequest) (sandbox.Info, error)
	Console(id string) (io.ReadCloser, error)
	FollowConsole(ctx context.Context, id string, lines int, write func([]byte) error) error
	Memory(id string) (sandbox.MemoryUse, error)
	Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error)
	Rollback(ctx context.Context, id, tag string) (sandbox.Info, error)
	Promote(ctx context.Context, req sandbox.PromoteRequest) (sandbox.Promotion, error)
	ForkGroup(ctx context.Context, req sandbox.GroupForkRequest) (sandbox.GroupForkResult, error)
}

type networks interface {
	Network(id string) (sandbox.Network, error)
	SetNetwork(ctx context.Context, id string, req sandbox.NetworkRequest) (sandbox.Network, error)
	Flows(ctx context.Context, id string) ([]sandbox.NetFlow, error)
	NetworkLog(ctx context.Context, id string, follow bool, write func([]byte) error) error
}
