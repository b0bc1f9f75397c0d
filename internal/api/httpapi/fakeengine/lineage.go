package fakeengine

import (
	"fmt"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// lines holds the existing snapshots and sandboxes, and their lineage. The engine's mu guards it.
type lines struct {
	snapshots map[string]sandbox.SnapshotInfo
	entries   map[string]*entry
	hashes    map[string]int // used content hashes, by their first part
}

// hashLocked returns an unused content hash.
func (l *lines) hashLocked(first string) string {
	if l.hashes[first]++; l.hashes[first] > 1 {
		return fmt.Sprintf("sha256:%s%02x", first, l.hashes[first])
	}
	return "sha256:" + first
}

func (l *lines) snapshotLocked(tag string) (sandbox.SnapshotInfo, error) {
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.SnapshotInfo{}, sandbox.StoreError(err)
	}
	info, ok := l.snapshots[tag]
	if !ok {
		return info, sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonSnapshotNotFound, "snapshot %s not found", tag)
	}
	return l.relateLocked(info), nil
}

// relateLocked fills in a snapshot's current relatives and sandboxes.
func (l *lines) relateLocked(info sandbox.SnapshotInfo) sandbox.SnapshotInfo {
	info.Dependents = slices.Clone(info.Dependents)
	for tag, other := range l.snapshots {
		if other.ParentTag == info.Tag && other.ParentContentHash == info.ContentHash {
			info.Dependents = append(info.Dependents, tag)
		}
	}
	slices.Sort(info.Dependents)
	info.Ancestors = nil
	for p, ok := l.parentLocked(info); ok && !slices.Contains(info.Ancestors, p.Tag); p, ok = l.parentLocked(p) {
		info.Ancestors = append(info.Ancestors, p.Tag)
	}
	slices.Reverse(info.Ancestors)
	if _, reused := l.snapshots[info.ParentTag]; reused && len(info.Ancestors) == 0 {
		info.ParentTag = ""
	}
	for _, b := range l.entries {
		if b.info.Needs(info.Tag, info.ContentHash) {
			info.Sandboxes = append(info.Sandboxes, b.info.ID)
		}
	}
	slices.Sort(info.Sandboxes)
	return info
}

// parentLocked returns the parent snapshot, if it still exists.
func (l *lines) parentLocked(info sandbox.SnapshotInfo) (sandbox.SnapshotInfo, bool) {
	p, ok := l.snapshots[info.ParentTag]
	return p, ok && p.ContentHash == info.ParentContentHash
}

// descendantsLocked returns a snapshot and all snapshots built on it.
func (l *lines) descendantsLocked(tag string) []string {
	all := []string{tag}
	for _, d := range l.relateLocked(l.snapshots[tag]).Dependents {
		all = append(all, l.descendantsLocked(d)...)
	}
	return all
}

// ancestryLocked returns the tags a sandbox may be rolled back to.
func (l *lines) ancestryLocked(b *entry) []string {
	var line []string
	for tag, s := range l.snapshots {
		if s.BranchedFrom == b.info.ID || b.info.Needs(tag, s.ContentHash) {
			line = append(line, tag)
		}
		if b.info.Needs(tag, s.ContentHash) {
			line = append(line, l.relateLocked(s).Ancestors...)
		}
	}
	slices.Sort(line)
	return slices.Compact(line)
}
