package tenancy

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// diskFor is how long a tenant's disk usage is cached. Counting it reads the manifests of all snapshots and the
// sizes of the tenant's overlays, too much for each fork of a flood.
const diskFor = time.Second

// diskUse is a tenant's disk usage at a time.
type diskUse struct {
	at    time.Time
	bytes int64
}

// roomOnDisk returns an error if the tenant has reached its disk quota. A new object may still exceed the quota,
// because its size is not known in advance.
func (v *lens) roomOnDisk(ctx context.Context) error {
	limit := int64(v.quotas().DiskMiB) << 20
	if limit == 0 {
		return nil
	}
	used, err := v.diskUsed(ctx)
	if err != nil {
		return err
	}
	if used += v.t.cfg.Held(v.p.Tenant); used >= limit {
		return v.over("disk_mib", stockRetry,
			"the tenant's snapshots, uploads and its sandboxes' disks take %d MiB, and the key's quota is %d MiB",
			used>>20, limit>>20)
	}
	return nil
}

// uploadRoom refuses an upload if the key is no longer valid, or if the tenant's data exceeds the key's disk
// quota. Uploads in progress count with their whole size.
func (v snapshotView) uploadRoom(ctx context.Context) error {
	if !v.lens.keyAlive() {
		return sandbox.Errorf(sandbox.ErrForbidden, "", "the API key of the upload link is revoked or has expired")
	}
	limit := int64(v.lens.quotas().DiskMiB) << 20
	if limit == 0 {
		return nil
	}
	used, err := v.lens.diskUsed(ctx)
	if err != nil {
		return err
	}
	if used += v.lens.t.cfg.Held(v.lens.p.Tenant); used > limit {
		return v.lens.over("disk_mib", stockRetry,
			"with this upload the tenant's data would take %d MiB, and the key's quota is %d MiB", used>>20, limit>>20)
	}
	return nil
}

func (v *lens) keyAlive() bool { return v.p.KeyID == "" || v.t.cfg.Alive(v.p.KeyID) }

func (v *lens) diskUsed(ctx context.Context) (int64, error) {
	l, now := &v.t.ledger, v.t.cfg.Now()
	l.mu.Lock()
	last := l.disk[v.p.Tenant]
	l.mu.Unlock()
	if age := now.Sub(last.at); age >= 0 && age < diskFor {
		return last.bytes, nil
	}
	all, err := v.engine.Snapshots.ListSnapshots(ctx)
	if err != nil {
		return 0, err
	}
	used := v.engine.Sandboxes.OverlayBytes(v.p.Tenant)
	for _, s := range all {
		if s.Owner == v.p.Tenant {
			used += s.MemoryOwnBytes + s.DiskOwnBytes + s.VMStateBytes
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disk[v.p.Tenant] = diskUse{now, used}
	return used, nil
}

// diskChanged invalidates the cached usage after the tenant has created or deleted something.
func (v *lens) diskChanged() {
	if v.p.Operator() {
		return
	}
	v.t.ledger.mu.Lock()
	defer v.t.ledger.mu.Unlock()
	delete(v.t.ledger.disk, v.p.Tenant)
}
