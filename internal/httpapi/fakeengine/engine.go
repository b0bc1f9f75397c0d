// Package fakeengine behaves like the domain without any VM: snapshots and
// sandboxes are entries in maps, and guests are goroutines. It owns nothing
// outside its memory; tests of httpapi, of the client and of the CLI use it
// behind the real HTTP server. The trap: what it does is what the tests believe
// the engine does, so a change of the engine's behaviour belongs here too.
package fakeengine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/httpapi"
	"github.com/forkd/forkd/internal/receipt"
	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/vmspec"
)

var (
	_ httpapi.Engine = (*Engine)(nil)
	_ httpapi.Images = (*Images)(nil)
)

// Engine is the fake. Make it with New.
type Engine struct {
	// Now is the time of everything; fixed, so that output can be compared.
	Now time.Time
	// Limit is how many sandboxes fit; the others of a fork fail with ErrNoMemory.
	Limit int
	// BranchLimit is how many branches may be written at once.
	BranchLimit int

	images *Images

	mu        sync.Mutex // guards what follows
	snapshots map[string]sandbox.SnapshotInfo
	boxes     map[string]*box
	pools     map[string]int
	forks     int
	branches  int                      // that were not given a tag
	receipts  []receipt.Receipt        // oldest first
	writing   map[string]chan struct{} // closed when the snapshot of that tag is written
	collected bool                     // the garbage is gone
}

type box struct {
	info  sandbox.Info
	env   map[string]string
	guest *guest
}

// New makes an engine that boots the given images.
func New(images *Images) *Engine {
	return &Engine{
		Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Limit: 1000, BranchLimit: 4, images: images,
		snapshots: map[string]sandbox.SnapshotInfo{}, boxes: map[string]*box{}, pools: map[string]int{},
		writing: map[string]chan struct{}{},
	}
}

// Close ends all guests.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.boxes {
		b.guest.close()
	}
	e.boxes = map[string]*box{}
}

// CreateSnapshot makes one of a known image. An image named "broken" fails to
// boot, after the first step was reported.
func (e *Engine) CreateSnapshot(ctx context.Context, req sandbox.CreateRequest, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	e.mu.Lock()
	_, taken := e.snapshots[req.Tag]
	e.mu.Unlock()
	if taken {
		return sandbox.SnapshotInfo{}, fmt.Errorf("create snapshot %s: tag exists: %w", req.Tag, sandbox.ErrConflict)
	}
	img, err := e.parent(ctx, req)
	if err != nil {
		return sandbox.SnapshotInfo{}, fmt.Errorf("create snapshot %s: %w", req.Tag, err)
	}
	info := sandbox.SnapshotInfo{
		Tag: req.Tag, Dir: "/var/lib/forkd/snapshots/" + req.Tag, CreatedAt: e.Now, Status: sandbox.SnapshotReady,
		Image: img.Name, ImageDigest: img.Digest, Kernel: img.Kernel, Languages: []string{"python"},
		Shape:              vmspec.Shape{MemoryMiB: or(req.MemoryMiB, img.MemoryMiB), VCPUs: or(req.VCPUs, img.VCPUs), Disks: 1},
		MemoryLogicalBytes: 256 << 20, MemoryPhysicalBytes: 90 << 20, MemoryOwnBytes: 90 << 20, VMStateBytes: 20 << 10,
		DigestsReady: true, ContentHash: "sha256:feed",
	}
	for i, name := range []string{"boot", "warm", "quiesce", "save"} {
		progress(sandbox.Step{Name: name})
		if req.Image == "broken" {
			return sandbox.SnapshotInfo{}, fmt.Errorf("create snapshot %s: %w: the guest panicked\nKernel panic - not syncing: no init found", req.Tag, sandbox.ErrBootFailed)
		}
		step := sandbox.Step{Name: name, Done: true, Took: time.Duration(i+1) * 100 * time.Millisecond}
		progress(step)
		info.Steps = append(info.Steps, step)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshots[req.Tag] = info
	return info, nil
}

func (e *Engine) parent(ctx context.Context, req sandbox.CreateRequest) (httpapi.Image, error) {
	if req.Image == "" {
		return httpapi.Image{MemoryMiB: 256, VCPUs: 1}, nil
	}
	return e.images.GetImage(ctx, req.Image)
}

func or(v, otherwise int) int {
	if v != 0 {
		return v
	}
	return otherwise
}

// AddSnapshot puts one there as it is.
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
	return out, nil
}

func (e *Engine) SnapshotInfo(_ context.Context, tag string) (sandbox.SnapshotInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.snapshotLocked(tag)
}

func (e *Engine) snapshotLocked(tag string) (sandbox.SnapshotInfo, error) {
	info, ok := e.snapshots[tag]
	if !ok {
		return info, fmt.Errorf("snapshot %s: %w", tag, sandbox.ErrNotFound)
	}
	return e.relateLocked(info), nil
}

func (e *Engine) DeleteSnapshot(_ context.Context, tag string, opt sandbox.DeleteOptions) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	info, err := e.snapshotLocked(tag)
	if err != nil {
		return err
	}
	if len(info.Dependents) > 0 && !opt.Cascade && !opt.Force {
		return fmt.Errorf("delete snapshot %s: %v are built on it: %w", tag, info.Dependents, sandbox.ErrConflict)
	}
	e.deleteLocked(tag, opt.Cascade)
	return nil
}

// VerifySnapshot finds damage in a snapshot whose warning says "damaged".
func (e *Engine) VerifySnapshot(_ context.Context, tag string) (sandbox.VerifyReport, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	info, err := e.snapshotLocked(tag)
	if err != nil {
		return sandbox.VerifyReport{}, err
	}
	report := sandbox.VerifyReport{Tag: tag, Files: 3, Bytes: info.MemoryPhysicalBytes, Took: 1500 * time.Millisecond}
	if info.Warning == "damaged" {
		report.Damaged = []sandbox.Damage{{File: "memory", Offset: 4096, Length: 1 << 20, Detail: "digest differs"}}
	}
	return report, nil
}

func (e *Engine) SetPool(_ context.Context, tag string, size int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
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
		out = append(out, sandbox.PoolStatus{Tag: tag, Shape: e.snapshots[tag].Shape, Wanted: size, Ready: size})
	}
	return out
}
