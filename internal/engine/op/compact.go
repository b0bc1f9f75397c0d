package op

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/leaf/retention"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// CompactSnapshot makes a new snapshot with the same content and one layer for the memory and for
// each disk. It shares no layer with any other snapshot. A failed compaction leaves no snapshot and
// no files. CompactSnapshot calls progress, which may be nil, for the memory and each disk when it
// begins, as it is read, and when it is done.
func (o *Ops) CompactSnapshot(ctx context.Context, tag, to string,
	progress func(sandbox.Step)) (_ sandbox.SnapshotInfo, err error) {
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer done()
	if progress == nil {
		progress = func(sandbox.Step) {}
	}
	for _, t := range []string{tag, to} {
		if err := snapshot.CheckTag(t); err != nil {
			return sandbox.SnapshotInfo{}, sandbox.StoreError(err)
		}
	}
	if tag == to {
		return sandbox.SnapshotInfo{},
			sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonSameTag, "snapshot %s cannot be compacted to itself", tag)
	}
	var u undo.Stack
	defer u.Run()
	src, err := o.openForkSource(ctx, tag)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	u.Push(src.Close)
	if err := o.compact(ctx, src, to, &u, progress); err != nil {
		return sandbox.SnapshotInfo{},
			fmt.Errorf("compact snapshot %s to %s: %w", tag, to, sandbox.Ended(ctx, sandbox.StoreError(err)))
	}
	u.Run()
	o.catalog.HashLater(to)
	o.cfg.Logger.Info("snapshot compacted", "tag", tag, "to", to)
	return o.catalog.Get(to)
}

func (o *Ops) compact(ctx context.Context, src *launch.Source, to string, u *undo.Stack,
	progress func(sandbox.Step)) error {
	start := o.cfg.Now()
	from := src.Files.Manifest
	if err := o.catalog.RefusePartial(from); err != nil {
		return err
	}
	draft, err := o.catalog.Begin(sandbox.SnapshotInfo{
		Tag: to, Owner: from.Owner, CreatedAt: start, Shape: from.Shape,
		Labels: retention.OfCopy(o.catalog.Labels(from.Tag), time.UnixMilli(from.CreatedUnixMS)),
	}, false)
	if err != nil {
		return err
	}
	u.Push(draft.End)
	m := *from
	m.CreatedUnixMS, m.Parent, m.Ancestors, m.Branch, m.Disks = start.UnixMilli(), nil, nil, nil, nil
	for _, f := range from.Files {
		if err := draft.Adopt(ctx, f.Name, src.Files.File(f.Name)); err != nil {
			return err
		}
	}
	f := flattening{e: o, draft: draft.Draft, progress: progress}
	if m.Memory, err = f.flatten(ctx, sandbox.StepMemory, layer.Memory, src.Files.Memory); err != nil {
		return err
	}
	for i, d := range from.Disks {
		if !d.ReadOnly {
			if d.Chain, err = f.flatten(ctx, snapshot.DiskFile(i), layer.Disk, src.Files.Disks[i]); err != nil {
				return err
			}
		}
		m.Disks = append(m.Disks, d)
	}
	took := o.cfg.Now().Sub(start)
	m.Steps = []snapshot.Step{{Name: sandbox.StepCompact, TookMS: int64(took / time.Millisecond)}}
	if err := draft.Commit(&m); err != nil {
		return err
	}
	return o.checkCompacted(draft, src)
}

// flattening makes the layers of one compaction.
type flattening struct {
	e        *Ops
	draft    *snapshot.Draft
	progress func(sandbox.Step)
}

// progressEvery is the interval between progress reports of a running step.
const progressEvery = 200 * time.Millisecond

func (f flattening) flatten(ctx context.Context, step string, kind layer.Kind,
	chain *store.Chain) (snapshot.Chain, error) {
	start := f.e.cfg.Now()
	last := start
	f.progress(sandbox.Step{Name: step})
	k := f.draft.Stack(kind, chain.Size(), snapshot.Limits{}, chain.Layers()...)
	err := k.Flatten(ctx, func(done, total int64) {
		if now := f.e.cfg.Now(); done == total || now.Sub(last) >= progressEvery {
			last = now
			f.progress(sandbox.Step{Name: step, Bytes: done, Total: total})
		}
	})
	if err != nil {
		return snapshot.Chain{}, fmt.Errorf("%s: %w", step, err)
	}
	made := sandbox.Step{Name: step, Done: true, Took: f.e.cfg.Now().Sub(start)}
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
