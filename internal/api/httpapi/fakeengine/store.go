package fakeengine

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// CompactSnapshot makes a snapshot without dependencies. If the source has the warning "damaged",
// reading its memory fails.
func (e *Engine) CompactSnapshot(_ context.Context, tag, to string,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	if progress == nil {
		progress = func(sandbox.Step) {}
	}
	if tag == to {
		return sandbox.SnapshotInfo{}, fmt.Errorf("snapshot %s cannot be compacted to itself: %w", tag, sandbox.ErrInvalid)
	}
	busy := free(e, to)
	e.mu.Lock()
	defer e.mu.Unlock()
	info, err := e.snapshotLocked(tag)
	if err == nil {
		err = busy
	}
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	for i, name := range []string{sandbox.StepMemory, "disk1"} {
		progress(sandbox.Step{Name: name})
		progress(sandbox.Step{Name: name, Bytes: 64 << 20, Total: 256 << 20})
		if info.Warning == "damaged" {
			return sandbox.SnapshotInfo{},
				fmt.Errorf("compact snapshot %s to %s: memory: %w: input/output error", tag, to, storeerr.ErrNotRestorable)
		}
		progress(sandbox.Step{Name: name, Done: true, Took: time.Duration(i+1) * 10 * time.Millisecond, Bytes: 90 << 20})
	}
	info.ContentHash, info.ParentContentHash, info.Sandboxes = e.hashLocked("f1a7"), "", nil
	info.Tag, info.ParentTag, info.Ancestors, info.Dependents, info.BranchedFrom, info.Pause = to, "", nil, nil, "", 0
	info.MemoryOwnBytes, info.DiskOwnBytes = info.MemoryPhysicalBytes, info.DiskPhysicalBytes
	e.snapshots[to] = info
	return e.relateLocked(info), nil
}

// garbage is an unused layer, until it is collected.
const garbage = "6b1d0f8e3c2a4f5e9d7c8b6a5f4e3d2c"

// CollectLayers finds one layer, once.
func (e *Engine) CollectLayers(_ context.Context, dryRun bool) (sandbox.CollectReport, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := sandbox.CollectReport{DryRun: dryRun}
	if !e.collected {
		r.Layers, r.Temporary, r.Bytes = []string{garbage}, 2, 5<<20
	}
	e.collected = e.collected || !dryRun
	return r, nil
}
