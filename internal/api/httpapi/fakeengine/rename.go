package fakeengine

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// RenameSnapshot gives a snapshot another tag.
func (l labelled) RenameSnapshot(_ context.Context, tag, to string) (sandbox.SnapshotInfo, error) {
	busy := free(l.e, to)
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	info, err := l.e.snapshotLocked(tag)
	if err == nil && info.Status == sandbox.SnapshotWriting {
		err = sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSnapshotNotReady, "snapshot %s is being written", tag)
	}
	if err == nil {
		err = busy
	}
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	stored := l.e.snapshots[tag]
	delete(l.e.snapshots, tag)
	stored.Tag = to
	l.e.snapshots[to] = stored
	for name, s := range l.e.snapshots {
		if s.ParentTag == tag && s.ParentContentHash == stored.ContentHash {
			s.ParentTag = to
			l.e.snapshots[name] = s
		}
	}
	for _, b := range l.e.entries {
		if b.info.SnapshotTag == tag && b.info.SnapshotHash == stored.ContentHash {
			b.info.SnapshotTag = to
		}
		if b.info.RolledBackTo == tag && b.info.RolledBackHash == stored.ContentHash {
			b.info.RolledBackTo = to
		}
	}
	if size, set := l.e.pools[tag]; set {
		delete(l.e.pools, tag)
		l.e.pools[to] = size
	}
	return l.e.relateLocked(stored), nil
}
