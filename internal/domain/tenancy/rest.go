package tenancy

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
)

// Receipt returns the newest receipt of a subject. The subject may be deleted: the receipt records its owner.
func (v recordView) Receipt(kind receipt.Kind, of string) (receipt.Receipt, error) {
	if v.lens.p.Operator() {
		return v.lens.engine.Receipts.Receipt(kind, of)
	}
	list, err := v.Receipts(receipt.Filter{Kind: kind, Of: of, Limit: 1})
	if err == nil && len(list) == 0 {
		err = sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonReceiptNotFound, "%s %s has no receipt", kind,
			sandbox.Clip(of))
	}
	if err != nil {
		return receipt.Receipt{}, err
	}
	return list[0], nil
}

// Receipts returns the tenant's receipts, newest first. A tag may have belonged to another tenant before.
func (v recordView) Receipts(f receipt.Filter) ([]receipt.Receipt, error) {
	if v.lens.p.Operator() {
		return v.lens.engine.Receipts.Receipts(f)
	}
	f.Tenant = v.lens.p.Tenant
	names := []string{f.Of}
	if f.Kind == receipt.OfSnapshot && f.Of != "" {
		if whole, err := v.lens.newTag(f.Of); err == nil && whole != f.Of {
			names = []string{whole, f.Of}
		}
	}
	for _, name := range names {
		f.Of = name
		all, err := v.lens.engine.Receipts.Receipts(f)
		if err != nil || len(all) > 0 {
			return all, err
		}
	}
	return nil, nil
}

// SetPool sets the number of ready shells for one of the tenant's own snapshots.
func (v recordView) SetPool(ctx context.Context, tag string, size int) error {
	b, err := v.lens.findOwn(tag)
	if err != nil {
		return err
	}
	release, err := v.lens.admitPool(b, size)
	if err != nil {
		return err
	}
	defer release()
	return v.lens.engine.Pools.SetPool(ctx, b.Tag, size)
}

// Pools returns the pools of the tenant's own snapshots.
func (v recordView) Pools() []sandbox.PoolStatus {
	all := v.lens.engine.Pools.Pools()
	if v.lens.p.Operator() {
		return all
	}
	var out []sandbox.PoolStatus
	for _, p := range all {
		if b, err := v.lens.engine.Snapshots.SnapshotBrief(p.Tag); err == nil && v.lens.p.Sees(b.Owner) {
			out = append(out, p)
		}
	}
	return out
}

// Holdings returns the number and memory of the tenant's running sandboxes.
func (v sandboxView) Holdings(owner string) (n, memoryMiB int) {
	if !v.lens.p.Sees(owner) {
		return 0, 0
	}
	return v.lens.engine.Sandboxes.Holdings(owner)
}

// OverlayBytes returns the bytes that the tenant's sandboxes have written to their disks.
func (v sandboxView) OverlayBytes(owner string) int64 {
	if !v.lens.p.Sees(owner) {
		return 0
	}
	return v.lens.engine.Sandboxes.OverlayBytes(owner)
}

// Capacity returns the host's capacity. It includes all tenants, so only the operator may see it.
func (v recordView) Capacity() (sandbox.Capacity, error) {
	if !v.lens.p.Operator() {
		return sandbox.Capacity{}, v.lens.operatorOnly("the host's capacity")
	}
	return v.lens.engine.Hosts.Capacity()
}
