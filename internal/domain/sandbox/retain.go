package sandbox

import "github.com/forkd/forkd/internal/leaf/retention"

// PruneRequest selects snapshots that are due by the rules of package retention.
type PruneRequest struct {
	DryRun bool // list them only
	// Sees reports whether the caller may see the snapshots of an owner. If nil, it may see all.
	Sees func(owner string) bool
}

// PruneReport lists the snapshots that are due.
type PruneReport struct {
	DryRun    bool
	Snapshots []DueSnapshot // by tag
	Bytes     int64         // freed by all removed ones together; a layer counts once
}

// DueSnapshot is a snapshot that is due.
type DueSnapshot struct {
	Tag   string
	Owner string // tenant; empty for the operator
	Why   string // the rule
	Held  string // why it stays; empty if it was removed, or would be
	Bytes int64  // its part of the report's Bytes
}

// Retained returns the facts for the rules of package retention. A transient snapshot has no rules: it goes with its
// last user.
func (s SnapshotInfo) Retained() retention.Snapshot {
	r := retention.Snapshot{Tag: s.Tag, Owner: s.Owner, Source: s.BranchedFrom, Made: s.CreatedAt, Labels: s.Labels,
		Broken: s.Status != SnapshotReady}
	if s.Transient {
		r.Labels = nil
	}
	switch {
	case s.Status == SnapshotWriting:
		r.Held = "it is being written"
	case s.Public:
		r.Held = "it is published"
	case len(s.Sandboxes) > 0:
		r.Held = "sandboxes run from it"
	case s.FetchBytes > 0:
		r.Held = "it is being fetched"
	}
	return r
}

// Pinned reports whether a label pins the snapshot.
func (s SnapshotInfo) Pinned() bool {
	r, err := retention.Of(s.Labels, s.CreatedAt)
	return err == nil && r.Pinned && !s.Transient
}
