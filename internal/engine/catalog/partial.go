package catalog

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// RefusePartial returns an error if a snapshot has not arrived whole, for operations that read all of it.
func (c *Catalog) RefusePartial(m *snapshot.Manifest) error {
	en := snapshot.Entry{Tag: m.Tag, Manifest: m}
	if len(c.snapshots.Absent(en)) == 0 {
		return nil
	}
	var info sandbox.SnapshotInfo
	fetched(c, &info, en)
	return sandbox.Detailed(sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSnapshotPartial,
		"snapshot %s is partial: %d %% of it has arrived, and this needs all of it",
		m.Tag, info.Fetched()), "tag", m.Tag)
}
