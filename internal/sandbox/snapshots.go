package sandbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/snapshot"
)

// ListSnapshots returns all snapshots by tag: those that are being written and
// those that are damaged, too.
func (e *Engine) ListSnapshots(ctx context.Context) ([]SnapshotInfo, error) {
	entries, err := e.store.List()
	if err != nil {
		return nil, storeError(err)
	}
	tree := newLineage(entries)
	out := make([]SnapshotInfo, 0, len(entries))
	for _, en := range entries {
		out = append(out, e.describe(en, tree))
	}
	e.mu.Lock()
	out = append(out, slices.Collect(maps.Values(e.failed))...)
	for _, c := range e.creating {
		if !slices.ContainsFunc(out, func(s SnapshotInfo) bool { return s.Tag == c.Tag }) {
			out = append(out, c)
		}
	}
	e.mu.Unlock()
	slices.SortFunc(out, func(a, b SnapshotInfo) int { return cmp.Compare(a.Tag, b.Tag) })
	return out, ctx.Err()
}

// SnapshotInfo describes one snapshot.
func (e *Engine) SnapshotInfo(_ context.Context, tag string) (SnapshotInfo, error) {
	if err := snapshot.CheckTag(tag); err != nil {
		return SnapshotInfo{}, storeError(err)
	}
	e.mu.Lock()
	c, writing := e.creating[tag]
	f, failed := e.failed[tag]
	e.mu.Unlock()
	switch {
	case writing:
		return c, nil
	case failed:
		return f, nil
	}
	entries, err := e.store.List()
	if err != nil {
		return SnapshotInfo{}, storeError(err)
	}
	for _, en := range entries {
		if en.Tag == tag {
			return e.describe(en, newLineage(entries)), nil
		}
	}
	return SnapshotInfo{}, problem(ErrNotFound, "`forkd snapshot ls` shows the snapshots there are", "snapshot %s not found", tag)
}

func (e *Engine) describe(en snapshot.Entry, tree lineage) SnapshotInfo {
	s := SnapshotInfo{
		Tag: en.Tag, Dir: e.store.Dir(en.Tag), Status: SnapshotReady, ContentHash: en.ContentHash,
		Ancestors: tree.ancestors(en.Tag), Dependents: tree.children[en.Tag],
		Sandboxes: e.usersOf(en.Tag), DigestsReady: e.store.HasDigests(en.Tag),
	}
	if en.Err != nil {
		s.Status, s.Warning = SnapshotFailed, en.Err.Error()
	}
	if m := en.Manifest; m != nil {
		s.fill(m)
		memory, disks := e.store.Sizes(m)
		s.MemoryLogicalBytes, s.MemoryPhysicalBytes, s.MemoryOwnBytes = memory.Logical, memory.Physical, memory.Own
		s.DiskLogicalBytes, s.DiskPhysicalBytes, s.DiskOwnBytes = disks.Logical, disks.Physical, disks.Own
		s.MemoryFile = e.layers.Path(m.Memory.Layers[0])
	}
	return s
}

func (s *SnapshotInfo) fill(m *snapshot.Manifest) {
	s.CreatedAt, s.Shape, s.Cmdline, s.Languages = m.Created(), m.Shape, m.Cmdline, m.Languages
	if m.Image != nil {
		s.Image, s.ImageDigest, s.Kernel = m.Image.Name, m.Image.Digest, m.Image.Kernel
	}
	if p := m.Parent; p != nil {
		s.ParentTag, s.ParentContentHash = p.Tag, p.ContentHash
	}
	if b := m.Branch; b != nil {
		s.Transient = b.Transient
		s.CapturedBytes = b.Bytes
		s.BranchedFrom, s.Pause = b.Sandbox, time.Duration(b.PauseUS)*time.Microsecond
	}
	for _, f := range m.Files {
		if f.Name == m.State.File {
			s.VMStateBytes = f.Bytes
		}
	}
	for _, st := range m.Steps {
		s.Steps = append(s.Steps, Step{Name: st.Name, Done: true, Took: time.Duration(st.TookMS) * time.Millisecond, Bytes: st.Bytes})
	}
}

// usersOf are the sandboxes that run from a snapshot.
func (e *Engine) usersOf(tag string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []string
	for id, b := range e.boxes {
		if b.info.needs(tag) && !b.killing {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// lineage is who was branched from whom.
type lineage struct {
	parent   map[string]string
	children map[string][]string
}

func newLineage(entries []snapshot.Entry) lineage {
	l := lineage{parent: map[string]string{}, children: map[string][]string{}}
	for _, en := range entries {
		if en.Manifest != nil && en.Manifest.Parent != nil {
			l.parent[en.Tag] = en.Manifest.Parent.Tag
			l.children[en.Manifest.Parent.Tag] = append(l.children[en.Manifest.Parent.Tag], en.Tag)
		}
	}
	return l
}

// ancestors are root first. A circle, which only a forged manifest can make, ends the walk.
func (l lineage) ancestors(tag string) []string {
	var up []string
	for p := l.parent[tag]; p != "" && p != tag && !slices.Contains(up, p); p = l.parent[p] {
		up = append(up, p)
	}
	slices.Reverse(up)
	return up
}

// descendants are leaves first, so that they can be deleted in that order.
func (l lineage) descendants(tag string) []string {
	all := []string{tag}
	for i := 0; i < len(all); i++ {
		for _, c := range l.children[all[i]] {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	slices.Reverse(all)
	return all[:len(all)-1]
}

// DeleteSnapshot deletes a snapshot that nothing depends on; see DeleteOptions
// for the others. Sandboxes that run from a deleted one live on.
func (e *Engine) DeleteSnapshot(ctx context.Context, tag string, o DeleteOptions) error {
	_, done, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if o.Cascade && o.Force {
		return problem(ErrInvalid, "", "cascade and force exclude each other")
	}
	if e.forgetFailed(tag) {
		return nil
	}
	if _, err := e.SnapshotInfo(ctx, tag); err != nil {
		return err
	}
	entries, err := e.store.List()
	if err != nil {
		return storeError(err)
	}
	victims := []string{tag}
	if down := newLineage(entries).descendants(tag); o.Cascade {
		victims = append(down, tag)
	} else if len(down) > 0 && !o.Force {
		return problem(ErrConflict, "delete them first, or use cascade, or force", "snapshot %s has dependents: %s", tag, strings.Join(down, ", "))
	}
	leave, err := e.claim(victims, o.Force)
	if err != nil {
		return err
	}
	defer leave()
	defer e.collectLater()
	for _, v := range victims {
		if err := e.holdForUsers(v); err != nil {
			return err
		}
		if err := e.store.Delete(v); err != nil {
			return storeError(err)
		}
		e.discardAll(e.pools.forget(v))
		e.pools.sources.drop(v)
	}
	if err := e.savePools(); err != nil {
		e.cfg.Logger.Warn("save pool sizes", "err", err)
	}
	e.guests.kick() // what it was built on may be needed no more
	return nil
}

// claim marks tags as being deleted if nobody uses them, or in spite of it.
func (e *Engine) claim(tags []string, force bool) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, tag := range tags {
		if _, writing := e.creating[tag]; writing || e.deleting[tag] {
			return nil, problem(ErrConflict, "", "snapshot %s is being written or deleted", tag)
		}
		if users := e.usersLocked(tag); len(users) > 0 && !force {
			return nil, problem(ErrConflict, "kill them first, or use force: they live on", "snapshot %s is in use by %s", tag, strings.Join(users, ", "))
		}
	}
	for _, tag := range tags {
		e.deleting[tag] = true
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, tag := range tags {
			delete(e.deleting, tag)
		}
	}, nil
}

// usersLocked names at most a few users of a tag.
func (e *Engine) usersLocked(tag string) []string {
	const most = 20
	var ids []string
	for id, b := range e.boxes {
		if b.info.needs(tag) && !b.killing {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if over := len(ids) - most; over > 0 {
		ids = append(ids[:most], "and more")
	}
	if e.using[tag] > 0 {
		ids = append(ids, "a fork under way")
	}
	return ids
}
