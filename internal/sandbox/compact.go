package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/layer/store"
	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/undo"
)

// StepCompact is the step in the account of a compacted snapshot. While it is made
// there are steps of its own, StepMemory and one for each disk of layers
// (snapshot.DiskFile).
const (
	StepCompact = "compact"
	StepMemory  = "memory"
)

// CompactSnapshot makes a new snapshot that shows what another one shows and shares
// no layer with any: its memory and disks are a layer each. Nothing remains of one
// that failed. progress is told of each of them as it is begun, read and done; it may be nil.
func (e *Engine) CompactSnapshot(ctx context.Context, tag, to string, progress func(Step)) (_ SnapshotInfo, err error) {
	caller := ctx
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return SnapshotInfo{}, err
	}
	defer done()
	if progress == nil {
		progress = func(Step) {}
	}
	for _, t := range []string{tag, to} {
		if err := snapshot.CheckTag(t); err != nil {
			return SnapshotInfo{}, storeError(err)
		}
	}
	if tag == to {
		return SnapshotInfo{}, problem(ErrInvalid, "choose another tag: the snapshot itself stays as it is", "snapshot %s cannot be compacted to itself", tag)
	}
	var u undo.Stack
	defer u.Run()
	src, err := e.openForkSource(ctx, tag)
	if err != nil {
		return SnapshotInfo{}, err
	}
	u.Push(src.close)
	if err := e.compact(ctx, src, to, &u, progress); err != nil {
		return SnapshotInfo{}, fmt.Errorf("compact snapshot %s to %s: %w", tag, to, ended(ctx, storeError(err)))
	}
	u.Run()
	e.sealLater(to)
	e.cfg.Logger.Info("snapshot compacted", "tag", tag, "to", to)
	return e.SnapshotInfo(context.WithoutCancel(caller), to)
}

func (e *Engine) compact(ctx context.Context, src *forkSource, to string, u *undo.Stack, progress func(Step)) error {
	start := e.cfg.Now()
	from := src.files.Manifest
	draft, err := e.store.Create(to)
	if err != nil {
		return err
	}
	u.Push(draft.Discard)
	u.Push(e.listWriting(SnapshotInfo{Tag: to, Dir: e.store.Dir(to), CreatedAt: start, Status: SnapshotWriting, Shape: from.Shape}))
	m := *from
	m.CreatedUnixMS, m.Parent, m.Branch, m.Disks = start.UnixMilli(), nil, nil, nil
	for _, f := range from.Files {
		if err := draft.Adopt(f.Name, filepath.Join(e.store.Dir(from.Tag), f.Name)); err != nil {
			return err
		}
	}
	f := flattening{e: e, draft: draft, progress: progress}
	if m.Memory, err = f.flatten(ctx, StepMemory, layer.Memory, src.files.Memory); err != nil {
		return err
	}
	for i, d := range from.Disks {
		if !d.ReadOnly {
			if d.Chain, err = f.flatten(ctx, snapshot.DiskFile(i), layer.Disk, src.files.Disks[i]); err != nil {
				return err
			}
		}
		m.Disks = append(m.Disks, d)
	}
	took := e.cfg.Now().Sub(start)
	m.Steps = []snapshot.Step{{Name: StepCompact, TookMS: int64(took / time.Millisecond)}}
	return draft.Commit(&m)
}

// flattening makes the layers of one compaction.
type flattening struct {
	e        *Engine
	draft    *snapshot.Draft
	progress func(Step)
}

// progressEvery is how often a step that is under way is told of.
const progressEvery = 200 * time.Millisecond

func (f flattening) flatten(ctx context.Context, step string, kind layer.Kind, chain *store.Chain) (snapshot.Chain, error) {
	start := f.e.cfg.Now()
	last := start
	f.progress(Step{Name: step})
	k := f.draft.Stack(kind, chain.Size(), snapshot.Limits{}, chain.Layers()...)
	err := k.Flatten(ctx, func(done, total int64) {
		if now := f.e.cfg.Now(); done == total || now.Sub(last) >= progressEvery {
			last = now
			f.progress(Step{Name: step, Bytes: done, Total: total})
		}
	})
	if err != nil {
		return snapshot.Chain{}, fmt.Errorf("%s: %w", step, err)
	}
	made := Step{Name: step, Done: true, Took: f.e.cfg.Now().Sub(start)}
	for _, id := range k.Chain().Layers {
		n, err := f.e.layers.Bytes(id)
		if err != nil {
			return snapshot.Chain{}, fmt.Errorf("%s: %w", step, err)
		}
		made.Bytes += n
	}
	f.progress(made)
	return k.Chain(), nil
}

// listWriting lists a snapshot that is being made, until it is done.
func (e *Engine) listWriting(info SnapshotInfo) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.failed, info.Tag)
	e.creating[info.Tag] = info
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.creating, info.Tag)
	}
}
