package tenancy

import (
	"context"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// CreateSnapshot creates a snapshot of an image.
func (v snapshotView) CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	if err := sandbox.CheckGivenLabels(req.Labels); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	req.HostPorts = v.lens.hostPorts()
	if v.lens.p.Operator() {
		return v.lens.engine.Snapshots.CreateSnapshot(ctx, req, progress)
	}
	memoryMiB, err := v.ParentMemoryMiB(ctx, req)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	req.MemoryMiB = memoryMiB // the VM gets the counted memory, even if the image changes meanwhile
	release, err := v.lens.admitMaking(ctx, &req.Tag, &req.Tap, req.TapIfAllowed, memoryMiB)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer release()
	req.Owner = v.lens.p.Tenant
	return v.lens.engine.Snapshots.CreateSnapshot(ctx, req, progress)
}

// ParentMemoryMiB returns the guest memory of the VM that CreateSnapshot would boot for req.
func (v snapshotView) ParentMemoryMiB(ctx context.Context, req sandbox.CreateRequest) (int, error) {
	if !v.lens.p.Operator() && (req.Kernel != "" || req.Rootfs != "") {
		return 0, v.lens.operatorOnly("a kernel or root file system by its path")
	}
	return v.lens.engine.Snapshots.ParentMemoryMiB(ctx, req)
}

// DeriveSnapshot creates a snapshot on top of another one.
func (v snapshotView) DeriveSnapshot(ctx context.Context, req sandbox.DeriveRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	if err := sandbox.CheckGivenLabels(req.Labels); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	req.HostPorts = v.lens.hostPorts()
	if v.lens.p.Operator() {
		return v.lens.engine.Snapshots.DeriveSnapshot(ctx, req, progress)
	}
	from, err := v.lens.find(req.From)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	release, err := v.lens.admitMaking(ctx, &req.Tag, &req.Tap, req.TapIfAllowed, from.MemoryMiB)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer release()
	req.From, req.Owner = from.Tag, v.lens.p.Tenant
	info, err := v.lens.engine.Snapshots.DeriveSnapshot(ctx, req, progress)
	return v.lens.shown(info), err
}

// admitMaking lets a tenant create a snapshot, for which one VM runs.
func (v *lens) admitMaking(ctx context.Context, tag, tap *string, ifAllowed bool, memoryMiB int) (func(), error) {
	var err error
	if *tag, err = v.newTag(*tag); err != nil {
		return nil, err
	}
	if *tap != "" && !ifAllowed {
		return nil, v.operatorOnly("a tap of the host")
	}
	*tap = ""
	if err := v.roomOnDisk(ctx); err != nil {
		return nil, err
	}
	release, err := v.admit(1, memoryMiB)
	if err != nil {
		return nil, err
	}
	return func() {
		release()
		v.diskChanged()
	}, nil
}

// ListSnapshots returns the tenant's own and the public snapshots.
func (v snapshotView) ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error) {
	all, err := v.lens.engine.Snapshots.ListSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	var out []sandbox.SnapshotInfo
	for _, s := range all {
		if v.lens.p.Sees(s.Owner) || v.lens.t.cfg.Published.Has(s.Tag, s.ContentHash) {
			out = append(out, v.lens.shown(s))
		}
	}
	return out, nil
}

// SnapshotInfo describes one snapshot.
func (v snapshotView) SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error) {
	if v.lens.p.Operator() {
		info, err := v.lens.engine.Snapshots.SnapshotInfo(ctx, tag)
		return v.lens.shown(info), err
	}
	b, err := v.lens.find(tag)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	info, err := v.lens.engine.Snapshots.SnapshotInfo(ctx, b.Tag)
	return v.lens.shown(info), err
}

// SnapshotBrief returns a snapshot's owner, hash and memory.
func (v snapshotView) SnapshotBrief(tag string) (sandbox.SnapshotBrief, error) {
	return v.lens.find(tag)
}

// shown returns the info without other tenants' data.
func (v *lens) shown(s sandbox.SnapshotInfo) sandbox.SnapshotInfo {
	s.Public = v.t.cfg.Published.Has(s.Tag, s.ContentHash)
	s.Secrets = v.judged(s.Secrets)
	if v.p.Operator() {
		return s
	}
	visible := func(tag string) bool {
		b, err := v.engine.Snapshots.SnapshotBrief(tag)
		return err == nil && (v.p.Sees(b.Owner) || v.t.cfg.Published.Has(b.Tag, b.ContentHash))
	}
	others := func(tag string) bool { return !visible(tag) }
	s.Ancestors = slices.DeleteFunc(slices.Clone(s.Ancestors), others)
	s.Dependents = slices.DeleteFunc(slices.Clone(s.Dependents), others)
	s.Sandboxes = slices.DeleteFunc(slices.Clone(s.Sandboxes), func(id string) bool { return v.mine(id) != nil })
	if s.ParentTag != "" && others(s.ParentTag) {
		s.ParentTag, s.ParentContentHash = "", ""
	}
	if !v.p.Sees(s.Owner) {
		s.Secrets = nil
	}
	s.Dir, s.MemoryFile = "", "" // only the operator may see paths of the host
	if !v.p.Sees(s.Owner) {      // a public snapshot's origin is not public
		s.Owner, s.BranchedFrom, s.Labels = "", "", nil
	}
	return s
}

// DeleteSnapshot deletes one of the tenant's own snapshots.
func (v snapshotView) DeleteSnapshot(ctx context.Context, tag string, opt sandbox.DeleteOptions) error {
	if v.lens.p.Operator() {
		return v.lens.engine.Snapshots.DeleteSnapshot(ctx, tag, opt)
	}
	b, err := v.lens.findOwn(tag)
	if err != nil {
		return err
	}
	if !opt.Force || opt.Cascade {
		if err := v.lens.refuseIfUsedByOthers(ctx, b.Tag); err != nil {
			return err
		}
	}
	defer v.lens.diskChanged()
	return v.lens.engine.Snapshots.DeleteSnapshot(ctx, b.Tag, opt)
}

// refuseIfUsedByOthers keeps a tenant from deleting a formerly public snapshot that other tenants depend on. Its
// error does not name them.
func (v *lens) refuseIfUsedByOthers(ctx context.Context, tag string) error {
	all, err := v.engine.Snapshots.ListSnapshots(ctx)
	if err != nil {
		return err
	}
	byTag := map[string]sandbox.SnapshotInfo{}
	for _, s := range all {
		byTag[s.Tag] = s
	}
	seen := map[string]bool{}
	for next := []string{tag}; len(next) > 0; next = next[1:] {
		s := byTag[next[0]]
		if seen[s.Tag] {
			continue
		}
		seen[s.Tag] = true
		if !v.p.Sees(s.Owner) || slices.ContainsFunc(s.Sandboxes, func(id string) bool { return v.mine(id) != nil }) {
			return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonDependentSnapshots,
				"snapshot %s was public, and other tenants use it", tag)
		}
		next = append(next, s.Dependents...)
	}
	return nil
}

// VerifySnapshot verifies one of the tenant's own snapshots.
func (v snapshotView) VerifySnapshot(ctx context.Context, tag string) (sandbox.VerifyReport, error) {
	b, err := v.lens.findOwn(tag)
	if err != nil {
		return sandbox.VerifyReport{}, err
	}
	return v.lens.engine.Snapshots.VerifySnapshot(ctx, b.Tag)
}

// CompactSnapshot copies one of the tenant's own snapshots. The copy belongs to the tenant, too.
func (v snapshotView) CompactSnapshot(ctx context.Context, tag, to string,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	if v.lens.p.Operator() {
		return v.lens.engine.Snapshots.CompactSnapshot(ctx, tag, to, progress)
	}
	b, err := v.lens.findOwn(tag)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if to, err = v.lens.newTag(to); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if err := v.lens.roomOnDisk(ctx); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer v.lens.diskChanged()
	info, err := v.lens.engine.Snapshots.CompactSnapshot(ctx, b.Tag, to, progress)
	return v.lens.shown(info), err
}

// CollectLayers affects all tenants, so only the operator may call it.
func (v snapshotView) CollectLayers(ctx context.Context, dryRun bool) (sandbox.CollectReport, error) {
	if err := v.lens.operatorOnly("the store"); err != nil {
		return sandbox.CollectReport{}, err
	}
	return v.lens.engine.Snapshots.CollectLayers(ctx, dryRun)
}

// DiffSnapshots compares two snapshots that the tenant may fork. A child of each runs for the tenant.
func (v snapshotView) DiffSnapshots(ctx context.Context, req sandbox.DiffRequest) (sandbox.SnapshotDiff, error) {
	if v.lens.p.Operator() {
		return v.lens.engine.Diffs.DiffSnapshots(ctx, req)
	}
	a, err := v.lens.find(req.Before)
	if err != nil {
		return sandbox.SnapshotDiff{}, err
	}
	b, err := v.lens.find(req.After)
	if err != nil {
		return sandbox.SnapshotDiff{}, err
	}
	release, err := v.lens.admit(2, a.MemoryMiB+b.MemoryMiB)
	if err != nil {
		return sandbox.SnapshotDiff{}, err
	}
	defer release()
	req.Before, req.After, req.Owner = a.Tag, b.Tag, v.lens.p.Tenant
	return v.lens.engine.Diffs.DiffSnapshots(ctx, req)
}

// publish makes a snapshot public for all tenants, or private again.
func (v snapshotView) publish(ctx context.Context, tag string, public bool) (sandbox.SnapshotInfo, error) {
	b, err := v.lens.findOwn(tag)
	if err == nil {
		err = v.lens.operatorOnly("publishing")
	}
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if b.ContentHash == "" {
		return sandbox.SnapshotInfo{}, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSnapshotNotReady,
			"snapshot %s is being written", b.Tag)
	}
	if public {
		if err := sandbox.RefuseTainted(v.lens.t.cfg.Secrets, b.Tag, b.Secrets); err != nil {
			return sandbox.SnapshotInfo{}, err
		}
	}
	if err := v.lens.t.cfg.Published.set(b.Tag, b.ContentHash, public); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	return v.SnapshotInfo(ctx, b.Tag)
}
