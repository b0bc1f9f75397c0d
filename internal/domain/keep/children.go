package keep

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// sandboxes returns the IDs of a request's sandboxes, each once. All of them exist.
func (r *Request) sandboxes(ctx context.Context, e Engine) ([]string, error) {
	if r.Of != "" {
		return childrenOf(ctx, e, r.Of)
	}
	var ids []string
	for _, name := range r.IDs {
		info, err := e.Get(sandbox.CanonicalID(name))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, info.ID) {
			ids = append(ids, info.ID)
		}
	}
	return ids, nil
}

// childrenOf returns the children of a snapshot or of a sandbox, oldest first. Failed sandboxes are
// left out: they have no guest to ask, and end by themselves.
func childrenOf(ctx context.Context, e Engine, name string) ([]string, error) {
	isChild, err := parent(ctx, e, name)
	if err != nil {
		return nil, err
	}
	var all []sandbox.Info
	for _, i := range e.List() {
		if i.Status != sandbox.StatusFailed && isChild(i) {
			all = append(all, i)
		}
	}
	switch {
	case len(all) == 0:
		return nil, sandbox.Errorf(sandbox.ErrNotFound, "", "%s has no children", sandbox.Clip(name))
	case len(all) > MaxSandboxes:
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "", "%s has %d children, and at most %d can be compared",
			sandbox.Clip(name), len(all), MaxSandboxes)
	}
	slices.SortStableFunc(all, func(a, b sandbox.Info) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	var ids []string
	for _, i := range all {
		ids = append(ids, i.ID)
	}
	return ids, nil
}

// parent returns a function that finds the children of a snapshot, or of a sandbox.
func parent(ctx context.Context, e Engine, name string) (func(sandbox.Info) bool, error) {
	brief, err := e.SnapshotBrief(name)
	if err == nil {
		return func(i sandbox.Info) bool { return from(i, brief.Tag, brief.ContentHash) }, nil
	}
	if !errors.Is(err, sandbox.ErrNotFound) {
		return nil, err
	}
	of, err := e.Get(sandbox.CanonicalID(name))
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, sandbox.Errorf(sandbox.ErrNotFound, "", "no snapshot and no sandbox is named %s", sandbox.Clip(name))
	} else if err != nil {
		return nil, err
	}
	branches, err := branchesOf(ctx, e, of.ID)
	return func(i sandbox.Info) bool {
		return i.Kin.Parent == of.ID || slices.ContainsFunc(branches, func(s sandbox.SnapshotInfo) bool {
			return from(i, s.Tag, s.ContentHash)
		})
	}, err
}

// branchesOf returns the snapshots that were made of a running sandbox.
func branchesOf(ctx context.Context, e Engine, id string) ([]sandbox.SnapshotInfo, error) {
	all, err := e.ListSnapshots(ctx)
	return slices.DeleteFunc(all, func(s sandbox.SnapshotInfo) bool { return s.BranchedFrom != id }), err
}

// from reports whether a sandbox was forked from a snapshot. The hash tells it from another snapshot
// that had the tag before.
func from(i sandbox.Info, tag, hash string) bool {
	return i.SnapshotTag == tag && i.SnapshotHash == hash
}
