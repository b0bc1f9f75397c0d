package catalog

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/partial"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// List returns all snapshots by tag, including snapshots being written, damaged ones and failed
// branches.
func (c *Catalog) List(ctx context.Context) ([]sandbox.SnapshotInfo, error) {
	entries, err := c.snapshots.List()
	if err != nil {
		return nil, sandbox.StoreError(err)
	}
	tree := newLineage(entries)
	out := make([]sandbox.SnapshotInfo, 0, len(entries))
	for _, en := range entries {
		out = append(out, c.describe(en, tree))
	}
	for _, info := range c.tags.listed() {
		if !slices.ContainsFunc(out, func(s sandbox.SnapshotInfo) bool { return s.Tag == info.Tag }) {
			out = append(out, info)
		}
	}
	slices.SortFunc(out, func(a, b sandbox.SnapshotInfo) int { return cmp.Compare(a.Tag, b.Tag) })
	return out, ctx.Err()
}

// Get describes one snapshot.
func (c *Catalog) Get(tag string) (sandbox.SnapshotInfo, error) {
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.SnapshotInfo{}, sandbox.StoreError(err)
	}
	e := c.tags.get(tag)
	if e.state == writing || e.state == failed {
		return e.info, nil
	}
	entries, err := c.snapshots.List()
	if err != nil {
		return sandbox.SnapshotInfo{}, sandbox.StoreError(err)
	}
	for _, en := range entries {
		if en.Tag == tag {
			return c.describe(en, newLineage(entries)), nil
		}
	}
	return sandbox.SnapshotInfo{}, notFound("snapshot %s not found", tag)
}

// Brief returns a snapshot's owner and memory size. It reads only that snapshot, so it is cheap
// enough to call for each request.
func (c *Catalog) Brief(tag string) (sandbox.SnapshotBrief, error) {
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.SnapshotBrief{}, sandbox.StoreError(err)
	}
	if e := c.tags.get(tag); e.state == writing || e.state == failed {
		return sandbox.SnapshotBrief{Tag: tag, Owner: e.info.Owner, MemoryMiB: e.info.Shape.MemoryMiB}, nil
	}
	en, err := c.snapshots.Get(tag)
	if err != nil {
		return sandbox.SnapshotBrief{}, sandbox.StoreError(err)
	}
	b := sandbox.SnapshotBrief{Tag: tag, ContentHash: en.ContentHash}
	if m := en.Manifest; m != nil { // a damaged one has no known owner and counts as the operator's
		b.Owner, b.MemoryMiB, b.Secrets = m.Owner, m.Shape.MemoryMiB, m.Secrets
	}
	return b, nil
}

func notFound(format string, args ...any) error {
	return sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonSnapshotNotFound, format, args...)
}

func (c *Catalog) describe(en snapshot.Entry, tree lineage) sandbox.SnapshotInfo {
	s := sandbox.SnapshotInfo{
		Tag: en.Tag, Dir: c.snapshots.Dir(en.Tag), Status: sandbox.SnapshotReady, ContentHash: en.ContentHash,
		Ancestors: tree.ancestors(en), Dependents: tree.children[en.Tag],
		Sandboxes: c.cfg.Sandboxes.Using(en.Tag, en.ContentHash), DigestsReady: c.snapshots.HasDigests(en),
	}
	if s.Labels = en.Labels; en.LabelsErr != nil {
		s.Warning = en.LabelsErr.Error()
	}
	if en.Err != nil {
		s.Status, s.Warning = sandbox.SnapshotFailed, en.Err.Error()
	}
	if en.Manifest != nil {
		fill(&s, en.Manifest)
		if c.cfg.Agent != nil {
			s.Agent = c.cfg.Agent(en.Manifest.Agent)
		}
		c.measure(&s, en.Manifest)
		fetched(c, &s, en)
		if p := en.Manifest.Parent; p != nil {
			s.ParentTag = tree.tagOf(*p)
		}
	}
	return s
}

// measure adds the sizes and health of the snapshot's layers.
func (c *Catalog) measure(s *sandbox.SnapshotInfo, m *snapshot.Manifest) {
	if s.Damaged, s.VerifiedAt = c.Health(m); len(s.Damaged) > 0 && s.Status == sandbox.SnapshotReady {
		s.Status, s.Warning = sandbox.SnapshotFailed, "damaged: "+strings.Join(s.Damaged, "; ")
	}
	memory, disks := c.snapshots.Sizes(m)
	s.MemoryLogicalBytes, s.MemoryPhysicalBytes, s.MemoryOwnBytes = memory.Logical, memory.Physical, memory.Own
	s.DiskLogicalBytes, s.DiskPhysicalBytes, s.DiskOwnBytes = disks.Logical, disks.Physical, disks.Own
	s.MemoryFile = c.layers.Path(m.Memory.Layers[0])
}

// fetched adds the progress of a snapshot that has not arrived whole.
func fetched(c *Catalog, s *sandbox.SnapshotInfo, en snapshot.Entry) {
	for _, id := range c.snapshots.Absent(en) {
		p, err := partial.Read(c.layers.Arriving().Dir(), id)
		if err != nil {
			continue // it has arrived meanwhile
		}
		s.FetchedBytes, s.FetchBytes = s.FetchedBytes+p.Done, s.FetchBytes+p.Total
	}
}

// fill adds the data of the manifest.
func fill(s *sandbox.SnapshotInfo, m *snapshot.Manifest) {
	s.CreatedAt, s.Shape, s.Cmdline, s.Languages = m.Created(), m.Shape, m.Cmdline, m.Languages
	s.Owner, s.Network, s.PrivatePorts = m.Owner, m.Network, !m.PublicPorts
	s.Secrets = sandbox.InheritSecrets(m.Secrets, nil)
	s.Volumes = Volumes(m)
	if m.Image != nil {
		s.Image, s.ImageDigest, s.Kernel = m.Image.Name, m.Image.Digest, m.Image.Kernel
	}
	if c := m.CPU; c != nil {
		s.CPU = &sandbox.CPU{Vendor: c.Vendor, Family: c.Family, Model: c.Model, Stepping: c.Stepping}
		s.CPU.Features = m.CPUFeatures
	}
	if p := m.Parent; p != nil { // describe removes the tag if another snapshot has it now
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
		took := time.Duration(st.TookMS) * time.Millisecond
		s.Steps = append(s.Steps, sandbox.Step{Name: st.Name, Done: true, Took: took, Bytes: st.Bytes})
	}
}

// Volumes returns the volumes of a snapshot. Its children have clones of them.
func Volumes(m *snapshot.Manifest) (out []sandbox.Volume) {
	for _, d := range m.Volumes() {
		v := d.Volume
		out = append(out, sandbox.Volume{ID: v.ID, Name: v.Name, Path: v.Path, Mode: sandbox.VolumeClone,
			ReadOnly: v.ReadOnly, Bytes: d.Bytes})
	}
	return out
}
