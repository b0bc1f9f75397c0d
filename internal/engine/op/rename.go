package op

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/sandboxes"
)

// RenameSnapshot gives a snapshot another tag. Its sandboxes keep running, and show the new tag.
func (l *Labels) RenameSnapshot(ctx context.Context, tag, to string) (sandbox.SnapshotInfo, error) {
	_, done, err := l.ops.begin(ctx)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer done()
	return catalog.Rename(l.ops.catalog, tag, to)
}

// Renamed replaces the tag of a renamed snapshot in its sandboxes, and moves its pool.
func (l *Labels) Renamed(hash, tag, to string) {
	if err := sandboxes.Rename(l.ops.sandboxes, hash, tag, to); err != nil {
		l.ops.cfg.Logger.Warn("record the new tag of sandboxes", "tag", to, "was", tag, "err", err)
	}
	l.ops.pools.Rename(tag, to)
}

// SettleRenames gives the sandboxes of renamed snapshots the present tags, if the previous daemon ended before that.
func (l *Labels) SettleRenames() error {
	all := l.ops.sandboxes.List()
	if len(all) == 0 {
		return nil
	}
	now, err := catalog.Tags(l.ops.catalog)
	if err != nil {
		return err
	}
	for _, i := range all {
		for tag, hash := range map[string]string{i.SnapshotTag: i.SnapshotHash, i.RolledBackTo: i.RolledBackHash} {
			if to := now(tag, hash); tag != "" && to != "" && to != tag {
				if err := sandboxes.Rename(l.ops.sandboxes, hash, tag, to); err != nil {
					l.ops.cfg.Logger.Warn("record the new tag of sandboxes", "tag", to, "was", tag, "err", err)
				}
			}
		}
	}
	return nil
}
