package fakeengine

import (
	"slices"

	"github.com/forkd/forkd/internal/sandbox"
)

// relateLocked fills in what a snapshot's relatives and sandboxes are now.
func (e *Engine) relateLocked(info sandbox.SnapshotInfo) sandbox.SnapshotInfo {
	info.Dependents = slices.Clone(info.Dependents)
	for tag, other := range e.snapshots {
		if other.ParentTag == info.Tag && other.ParentContentHash == info.ContentHash {
			info.Dependents = append(info.Dependents, tag)
		}
	}
	slices.Sort(info.Dependents)
	info.Ancestors = nil
	for p, ok := e.parentLocked(info); ok && !slices.Contains(info.Ancestors, p.Tag); p, ok = e.parentLocked(p) {
		info.Ancestors = append(info.Ancestors, p.Tag)
	}
	slices.Reverse(info.Ancestors)
	if _, reused := e.snapshots[info.ParentTag]; reused && len(info.Ancestors) == 0 {
		info.ParentTag = ""
	}
	for _, b := range e.entries {
		if b.info.Needs(info.Tag, info.ContentHash) {
			info.Sandboxes = append(info.Sandboxes, b.info.ID)
		}
	}
	slices.Sort(info.Sandboxes)
	return info
}

// parentLocked is the snapshot below, if it is there still.
func (e *Engine) parentLocked(info sandbox.SnapshotInfo) (sandbox.SnapshotInfo, bool) {
	p, ok := e.snapshots[info.ParentTag]
	return p, ok && p.ContentHash == info.ParentContentHash
}

// descendantsLocked are a snapshot and all that are built on it.
func (e *Engine) descendantsLocked(tag string) []string {
	all := []string{tag}
	for _, d := range e.relateLocked(e.snapshots[tag]).Dependents {
		all = append(all, e.descendantsLocked(d)...)
	}
	return all
}
