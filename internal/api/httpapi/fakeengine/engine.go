// Package fakeengine behaves like the domain without any VM. Snapshots and sandboxes are map
// entries, and guests are goroutines. It owns only its memory. Tests of httpapi, of the client and
// of the CLI run it behind the real HTTP server. The conformance suite enginetest checks that it
// behaves like the engine: a change of the engine's behaviour must be added there first, and then
// here. The trap: figures (times, sizes, hashes) are made up, so that output can be compared.
package fakeengine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/api/routes/images"
	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/store/volume"
)

var (
	_ Flat         = (*Engine)(nil)
	_ images.Store = (*Images)(nil)
)

// Engine is the fake. Create it with New.
type Engine struct {
	lives
	promotions
	hosts
	travels
	labelled

	// Secrets holds the tenants' secrets. If nil, the daemon keeps no secrets.
	Secrets sandbox.SecretSource
	// Volumes holds the tenants' volumes. Forks with volumes need it.
	Volumes *volume.Store
	// Networks holds the tenants' private networks. Forks that join one need it.
	Networks *privatenets.Store
	// Drain refuses new sandboxes. Its Run is the caller's.
	Drain *drain.Drain
	// Now is the fixed time of all events, so that output can be compared.
	Now time.Time
	// Clock is the time of deadlines instead of Now, if it is not nil. EndDue ends sandboxes by it.
	Clock func() time.Time
	// Wakes lets requests to guests resume paused sandboxes with AutoResume.
	Wakes bool
	// Limit is the largest number of sandboxes. Further children of a fork fail with ErrNoMemory.
	Limit int
	// NodeKey is in the ids of new sandboxes, if it is not empty.
	NodeKey sandbox.NodeKey
	// NoNetwork sets a ceiling that allows no network.
	NoNetwork bool
	// ConsoleText replaces the console text of each sandbox.
	ConsoleText string
	// DiskWritten is the number of bytes each sandbox has written to its own disk.
	DiskWritten int64
	// BranchLimit is the largest number of branches that may be written at the same time.
	BranchLimit int

	// Ports are the servers in each guest, by port. Each function serves one connection, which is
	// closed afterwards. Set Ports before the engine is used.
	Ports map[uint16]func(net.Conn)

	// Waiting counts forks that wait for a snapshot being written.
	Waiting atomic.Int32

	images *Images
	guests
	nets

	mu sync.Mutex // guards the fields below
	lines
	journal
	disks     map[string]*disk // of snapshots of sandboxes, by tag
	pools     map[string]int
	forks     int
	looks     int                      // number of listings
	branches  int                      // number of branches without a given tag
	writing   map[string]chan struct{} // closed when the snapshot of that tag is written
	collected bool                     // the garbage was collected
	away      map[string]away
}

type entry struct {
	info  sandbox.Info
	env   map[string]string
	guest *guest
	// secrets are the values of secrets by variable.
	secrets map[string]string
}

// New returns an engine that boots the given images.
func New(images *Images) *Engine {
	e := &Engine{
		Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Limit: 1000, BranchLimit: 4, images: images,
		lines: lines{snapshots: map[string]sandbox.SnapshotInfo{}, entries: map[string]*entry{}, hashes: map[string]int{}},
		disks: map[string]*disk{}, pools: map[string]int{}, writing: map[string]chan struct{}{},
	}
	e.guests.e, e.nets.e, e.lives.e, e.hosts.e, e.promotions.e, e.travels.e, e.labelled.e = e, e, e, e, e, e, e
	e.Drain = drain.Open(drain.Config{List: e.List, Pause: e.Pause})
	return e
}

// Close ends all guests.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.entries {
		b.guest.close()
	}
	e.entries = map[string]*entry{}
}

// CreateSnapshot makes a snapshot of a known image. An image named "broken" fails to boot after the
// first step was reported.
func (e *Engine) CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	if progress == nil {
		progress = func(sandbox.Step) {}
	}
	leave, err := e.Drain.Enter()
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer leave()
	img, err := parent(ctx, e, req)
	if err == nil {
		err = sandbox.CheckLabels(req.Labels)
	}
	if err == nil {
		_, err = e.networkOf(req.Network, req.HostPorts, sandbox.SnapshotInfo{})
	}
	if err == nil {
		err = free(e, req.Tag)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return sandbox.SnapshotInfo{}, fmt.Errorf("create snapshot %s: %w", req.Tag, err)
	}
	info := sandbox.SnapshotInfo{
		Tag: req.Tag, Owner: req.Owner,
		Dir: "/var/lib/forkd/snapshots/" + req.Tag, CreatedAt: e.Now, Status: sandbox.SnapshotReady,
		Image: img.Name, ImageDigest: img.Digest, Kernel: img.Kernel, Languages: []string{"python"},
		Shape: vmspec.Shape{MemoryMiB: cmp.Or(req.MemoryMiB, img.MemoryMiB),
			VCPUs: cmp.Or(req.VCPUs, img.VCPUs), Disks: 1},
		MemoryLogicalBytes: 256 << 20, MemoryPhysicalBytes: 90 << 20, MemoryOwnBytes: 90 << 20, VMStateBytes: 20 << 10,
		DigestsReady: true, Network: inherited(req.Network), Labels: req.Labels,
		CPU: &sandbox.CPU{Vendor: "AuthenticAMD", Family: 25, Model: 33, Features: []string{"avx2", "xsaves"}},
	}
	if err := info.Shape.Validate(); err != nil {
		return sandbox.SnapshotInfo{}, sandbox.Errorf(sandbox.ErrInvalid, "", "create snapshot %s: %w", req.Tag, err)
	}
	for i, name := range []string{"boot", "warm", "quiesce", "save"} {
		progress(sandbox.Step{Name: name})
		if req.Image == "broken" {
			return sandbox.SnapshotInfo{},
				fmt.Errorf("create snapshot %s: %w: the guest panicked\nKernel panic - not syncing: no init found",
					req.Tag, sandbox.ErrBootFailed)
		}
		step := sandbox.Step{Name: name, Done: true, Took: time.Duration(i+1) * 100 * time.Millisecond}
		if name == "quiesce" {
			step.Guest = []steps.Reported{{Name: "interpreters", Took: time.Millisecond}, {Name: "identity files"},
				{Name: "disks"}, {Name: "sync"}, {Name: "free page reports"}, {Name: "agent memory", Took: time.Hour}}
		}
		progress(step)
		info.Steps = append(info.Steps, step)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	info.ContentHash = e.hashLocked("feed")
	e.snapshots[req.Tag] = info
	return info, nil
}

// free returns an error if no snapshot can be made under a tag.
func free(e *Engine, tag string) error {
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.StoreError(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, taken := e.snapshots[tag]; taken {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonTagTaken, "tag exists")
	}
	return nil
}

// ParentMemoryMiB returns the guest memory of the VM CreateSnapshot would boot.
func (e *Engine) ParentMemoryMiB(ctx context.Context, req sandbox.CreateRequest) (int, error) {
	img, err := parent(ctx, e, req)
	return cmp.Or(req.MemoryMiB, img.MemoryMiB), err
}

func parent(ctx context.Context, e *Engine, req sandbox.CreateRequest) (images.Image, error) {
	bare := req.Kernel != "" || req.Rootfs != ""
	switch {
	case bare == (req.Image != ""), bare && (req.Kernel == "" || req.Rootfs == ""):
		return images.Image{}, fmt.Errorf("an image, or a kernel and a root file system: %w", sandbox.ErrInvalid)
	case bare:
		return images.Image{MemoryMiB: 256, VCPUs: 1}, nil
	}
	return e.images.GetImage(ctx, req.Image)
}

// AddSnapshot stores the given snapshot unchanged.
func (e *Engine) AddSnapshot(info sandbox.SnapshotInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshots[info.Tag] = info
}

func (e *Engine) ListSnapshots(context.Context) ([]sandbox.SnapshotInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []sandbox.SnapshotInfo
	for _, s := range e.snapshots {
		out = append(out, e.relateLocked(s))
	}
	slices.SortFunc(out, func(a, b sandbox.SnapshotInfo) int { return cmp.Compare(a.Tag, b.Tag) })
	return out, nil
}

func (e *Engine) SnapshotInfo(_ context.Context, tag string) (sandbox.SnapshotInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.snapshotLocked(tag)
}

// SnapshotBrief returns a snapshot's owner and basic facts.
func (e *Engine) SnapshotBrief(tag string) (sandbox.SnapshotBrief, error) {
	s, err := e.SnapshotInfo(context.Background(), tag)
	return sandbox.SnapshotBrief{Tag: tag, Owner: s.Owner, ContentHash: s.ContentHash, MemoryMiB: s.Shape.MemoryMiB,
		Secrets: secretsOf(s)}, err
}

// Holdings returns an owner's running sandboxes and their memory.
func (e *Engine) Holdings(owner string) (n, memoryMiB int) {
	for _, i := range e.List() {
		if i.Owner == owner && i.Status != sandbox.StatusFailed {
			n, memoryMiB = n+1, memoryMiB+i.Shape.MemoryMiB
		}
	}
	return n, memoryMiB
}

// OverlayBytes returns the bytes an owner's sandboxes have written: DiskWritten for each.
func (e *Engine) OverlayBytes(owner string) (sum int64) {
	for _, i := range e.List() {
		if i.Owner == owner {
			sum += e.DiskWritten
		}
	}
	return sum
}

func (e *Engine) DeleteSnapshot(_ context.Context, tag string, opt sandbox.DeleteOptions) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if opt.Cascade && opt.Force {
		return fmt.Errorf("cascade and force exclude each other: %w", sandbox.ErrInvalid)
	}
	info, err := e.snapshotLocked(tag)
	if err != nil {
		return err
	}
	if len(info.Dependents) > 0 && !opt.Cascade && !opt.Force {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonDependentSnapshots, "delete snapshot %s: %v are built on it",
			tag, info.Dependents)
	}
	victims := []string{tag}
	if opt.Cascade {
		victims = e.descendantsLocked(tag)
	}
	for _, v := range victims {
		s := e.relateLocked(e.snapshots[v])
		if s.Pinned() && !opt.Force {
			return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSnapshotPinned, "snapshot %s is pinned", v)
		}
		if s.Status == sandbox.SnapshotWriting || len(s.Sandboxes) > 0 && !opt.Force {
			return fmt.Errorf("snapshot %s is being written, or in use by %s: %w",
				v, strings.Join(s.Sandboxes, ", "), sandbox.ErrConflict)
		}
	}
	for _, v := range victims {
		delete(e.disks, v)
		delete(e.snapshots, v)
		delete(e.pools, v)
	}
	return nil
}

// VerifySnapshot finds damage in a snapshot with the warning "damaged".
func (e *Engine) VerifySnapshot(ctx context.Context, tag string) (sandbox.VerifyReport, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	info, err := e.snapshotLocked(tag)
	if err != nil {
		return sandbox.VerifyReport{}, err
	}
	report := sandbox.VerifyReport{Tag: tag, Files: 3, Bytes: info.MemoryPhysicalBytes, Took: 1500 * time.Millisecond}
	if info.Status == sandbox.SnapshotFailed {
		return sandbox.VerifyReport{}, fmt.Errorf("verify snapshot %s: %s: %w", tag, info.Warning, storeerr.ErrNotRestorable)
	}
	if tell := sandbox.Progress(ctx); tell != nil {
		tell(info.MemoryPhysicalBytes/2, info.MemoryPhysicalBytes)
	}
	if info.Warning == "changed" {
		report.Damaged = []sandbox.Damage{{File: "layers/6b1d0f8e", Detail: "its digests have changed"}}
	}
	if info.Warning == "damaged" {
		report.Damaged = []sandbox.Damage{{File: "memory", Offset: 4096, Length: 1 << 20, Detail: "digest differs"}}
	}
	return report, nil
}

func (e *Engine) SetPool(_ context.Context, tag string, size int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if size < 0 || size > sandbox.MaxPool {
		return fmt.Errorf("pool size is %d: %w", size, sandbox.ErrInvalid)
	}
	if _, err := e.snapshotLocked(tag); err != nil {
		return err
	}
	e.pools[tag] = size
	return nil
}

func (e *Engine) Pools() []sandbox.PoolStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []sandbox.PoolStatus
	for tag, size := range e.pools {
		out = append(out, sandbox.PoolStatus{Tag: tag, Shape: e.snapshots[tag].Shape, Wanted: size, Set: true,
			Ready: size})
	}
	slices.SortFunc(out, func(a, b sandbox.PoolStatus) int { return cmp.Compare(a.Tag, b.Tag) })
	return out
}
