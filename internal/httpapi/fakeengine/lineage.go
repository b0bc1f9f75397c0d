package fakeengine

import (
	"slices"

	"github.com/forkd/forkd/internal/sandbox"
)

// relateLocked fills in what a snapshot's relatives and sandboxes are now.
func (e *Engine) relateLocked(info sandbox.SnapshotInfo) sandbox.SnapshotInfo {
	info.Dependents = slices.Clone(info.Dependents)
	for tag, other := range e.snapshots {
		if other.ParentTag == info.Tag {
			info.Dependents = append(info.Dependents, tag)
		}
	}
	slices.Sort(info.Dependents)
	info.Ancestors = nil
	for p := info.ParentTag; p != "" && !slices.Contains(info.Ancestors, p); p = e.snapshots[p].ParentTag {
		info.Ancestors = append(info.Ancestors, p)
	}
	slices.Reverse(info.Ancestors)
	for _, b := range e.boxes {
		if b.info.SnapshotTag == info.Tag {
			info.Sandboxes = append(info.Sandboxes, b.info.ID)
		}
	}
	slices.Sort(info.Sandboxes)
	return info
}

// deleteLocked deletes a snapshot and, with cascade, all that are built on it.
func (e *Engine) deleteLocked(tag string, cascade bool) {
	info := e.relateLocked(e.snapshots[tag])
	delete(e.snapshots, tag)
	delete(e.pools, tag)
	if !cascade {
		return
	}
	for _, d := range info.Dependents {
		e.deleteLocked(d, true)
	}
}
