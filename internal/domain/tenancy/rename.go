package tenancy

import (
	"context"
	"errors"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// RenameSnapshot gives one of the tenant's own snapshots another tag. A public snapshot stays public.
func (v snapshotView) RenameSnapshot(ctx context.Context, tag, to string) (sandbox.SnapshotInfo, error) {
	b, err := v.findOwn(tag)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if to, err = v.newTag(to); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if b.Owner != "" && !strings.HasPrefix(to, b.Owner+"-") {
		return sandbox.SnapshotInfo{}, sandbox.Errorf(sandbox.ErrInvalid, "",
			"snapshot %s belongs to tenant %s: its tag must begin with %s-", b.Tag, b.Owner, b.Owner)
	}
	info, err := v.renamePublished(ctx, b, to)
	return v.shown(info), err
}

// renamePublished publishes the new tag before the snapshot has it, and withdraws the old one after that. An entry
// has no effect while its tag has no snapshot with its content hash.
func (v snapshotView) renamePublished(ctx context.Context, b sandbox.SnapshotBrief,
	to string) (sandbox.SnapshotInfo, error) {
	list := v.t.cfg.Published
	if !list.Has(b.Tag, b.ContentHash) {
		return v.engine.RenameSnapshot(ctx, b.Tag, to)
	}
	if _, err := v.engine.SnapshotBrief(to); err == nil { // its entry must stay
		return v.engine.RenameSnapshot(ctx, b.Tag, to)
	}
	if err := list.set(to, b.ContentHash, true); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	info, err := v.engine.RenameSnapshot(ctx, b.Tag, to)
	if err != nil {
		return info, errors.Join(err, list.set(to, b.ContentHash, false))
	}
	return info, list.set(b.Tag, b.ContentHash, false)
}
