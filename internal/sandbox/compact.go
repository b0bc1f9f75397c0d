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

// StepCompact is the step in the account of a compacted snapshot.
const StepCompact = "compact"

// CompactSnapshot makes a new snapshot that shows what another one shows and shares
// no layer with any: its memory and disks are a layer each. Nothing remains of one
// that failed.
func (e *Engine) CompactSnapshot(ctx context.Context, tag, to string) (_ SnapshotInfo, err error) {
	caller := ctx
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return SnapshotInfo{}, err
	}
	defer done()
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
	if err := e.compact(ctx, src, to, &u); err != nil {
		return SnapshotInfo{}, fmt.Errorf("compact snapshot %s to %s: %w", tag, to, ended(ctx, storeError(err)))
	}
	u.Run()
	e.sealLater(to)
	e.cfg.Logger.Info("snapshot compacted", "tag", tag, "to", to)
	return e.SnapshotInfo(context.WithoutCancel(caller), to)
}

func (e *Engine) compact(ctx context.Context, src *forkSource, to string, u *undo.Stack) error {
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
	if m.Memory, err = flatten(ctx, draft, layer.Memory, src.files.Memory); err != nil {
		return err
	}
	for i, d := range from.Disks {
		if !d.ReadOnly {
			if d.Chain, err = flatten(ctx, draft, layer.Disk, src.files.Disks[i]); err != nil {
				return err
			}
		}
		m.Disks = append(m.Disks, d)
	}
	took := e.cfg.Now().Sub(start)
	m.Steps = []snapshot.Step{{Name: StepCompact, TookMS: int64(took / time.Millisecond)}}
	return draft.Commit(&m)
}

func flatten(ctx context.Context, draft *snapshot.Draft, kind layer.Kind, chain *store.Chain) (snapshot.Chain, error) {
	k := draft.Stack(kind, chain.Size(), snapshot.Limits{}, chain.Layers()...)
	err := k.Flatten(ctx)
	return k.Chain(), err
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
