package merge

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// names are the parts of a merge.
type names struct {
	ours   sandbox.Info
	theirs sandbox.Info          // if it is a sandbox
	other  sandbox.SnapshotBrief // if theirs is a snapshot
	base   state
	// merged is set if theirs is a state that ours has come from.
	merged bool
}

// state is a snapshot, told from another one that had its tag.
type state struct{ Tag, Hash string }

// find finds the sandboxes and their nearest common ancestor.
func find(ctx context.Context, e Engine, req Request) (n names, err error) {
	if n.ours, err = e.Get(req.Ours); err != nil {
		return n, err
	}
	all, err := e.ListSnapshots(ctx)
	if err != nil {
		return n, err
	}
	stored := snapshots{}
	for _, s := range all {
		stored[s.Tag] = s
	}
	var past []state
	n.theirs, err = e.Get(sandbox.CanonicalID(req.Theirs))
	switch {
	case err == nil:
		past = stored.pastOf(n.theirs)
	case !errors.Is(err, sandbox.ErrNotFound):
		return n, err
	default:
		if n.other, err = e.SnapshotBrief(req.Theirs); errors.Is(err, sandbox.ErrNotFound) {
			return n, sandbox.Errorf(sandbox.ErrNotFound, "", "no sandbox and no snapshot is named %s", sandbox.Clip(req.Theirs))
		} else if err != nil {
			return n, err
		}
		past = stored.from(n.other.Tag, n.other.ContentHash)
	}
	if req.Base != "" {
		brief, err := e.SnapshotBrief(req.Base)
		n.base = state{brief.Tag, brief.ContentHash}
		return n, err
	}
	for _, s := range stored.pastOf(n.ours) {
		if slices.Contains(past, s) {
			n.base = s
			n.merged = s == state{n.other.Tag, n.other.ContentHash}
			return n, nil
		}
	}
	return n, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNoAncestor,
		"sandbox %s and %s have no common snapshot that is left", n.ours.ID, sandbox.Clip(req.Theirs))
}

// snapshots are the visible snapshots, by tag.
type snapshots map[string]sandbox.SnapshotInfo

// pastOf returns the states that a sandbox has come from, nearest first: the branches of itself, then
// the snapshots below it. Branches made before a rollback may not be in its past, so a sandbox that
// was rolled back has none.
func (all snapshots) pastOf(i sandbox.Info) (past []state) {
	if i.RolledBackTo == "" {
		var own []sandbox.SnapshotInfo
		for _, s := range all {
			if s.BranchedFrom == i.ID && s.Status == sandbox.SnapshotReady {
				own = append(own, s)
			}
		}
		slices.SortFunc(own, func(a, b sandbox.SnapshotInfo) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Tag, b.Tag))
		})
		for _, s := range own {
			past = append(past, state{s.Tag, s.ContentHash})
		}
	}
	tag, hash := i.Base()
	return append(past, all.from(tag, hash)...)
}

// from returns a snapshot and its ancestors, nearest first.
func (all snapshots) from(tag, hash string) []state {
	s, ok := all[tag]
	if !ok || s.ContentHash != hash {
		return nil
	}
	past := []state{{tag, hash}}
	for _, above := range slices.Backward(s.Ancestors) {
		if a, ok := all[above]; ok && a.ContentHash != "" {
			past = append(past, state{above, a.ContentHash})
		}
	}
	return past
}
