package tenancy

import (
	"context"
	"errors"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// RenameSnapshot gives one of the tenant's own snapshots another tag. A public snapshot stays public.
func (v labelView) RenameSnapshot(ctx context.Context, tag, to string) (sandbox.SnapshotInfo, error) {
	b, err := v.lens.findOwn(tag)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if to, err = v.lens.newTag(to); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if b.Owner != "" && !strings.HasPrefix(to, b.Owner+"-") {
		return sandbox.SnapshotInfo{}, sandbox.Errorf(sandbox.ErrInvalid, "",
			"snapshot %s belongs to tenant %s: its tag must begin with %s-", b.Tag, b.Owner, b.Owner)
	}
	info, err := v.renamePublished(ctx, b, to)
	return v.lens.shown(info), err
}

// renamePublished publishes the new tag before the snapshot has it, and withdraws the old one after that. An entry
// has no effect while its tag has no snapshot with its content hash.
func (v labelView) renamePublished(ctx context.Context, b sandbox.SnapshotBrief,
	to string) (sandbox.SnapshotInfo, error) {
	list := v.lens.t.cfg.Published
	if !list.Has(b.Tag, b.ContentHash) {
		return v.lens.engine.Labels.RenameSnapshot(ctx, b.Tag, to)
	}
	if _, err := v.lens.engine.Snapshots.SnapshotBrief(to); err == nil { // its entry must stay
		return v.lens.engine.Labels.RenameSnapshot(ctx, b.Tag, to)
	}
	if err := list.set(to, b.ContentHash, true); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	info, err := v.lens.engine.Labels.RenameSnapshot(ctx, b.Tag, to)
	if err != nil {
		return info, errors.Join(err, list.set(to, b.ContentHash, false))
	}
	return info, list.set(b.Tag, b.ContentHash, false)
}
