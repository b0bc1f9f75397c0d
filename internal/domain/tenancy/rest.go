package tenancy

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
)

// Receipt is the newest of a subject, which may be gone: whose it was is in the receipt.
func (v recordView) Receipt(kind receipt.Kind, of string) (receipt.Receipt, error) {
	if v.p.Operator() {
		return v.engine.Receipt(kind, of)
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

// Receipts are the tenant's, newest first. A tag may have been another's before.
func (v recordView) Receipts(f receipt.Filter) ([]receipt.Receipt, error) {
	if v.p.Operator() {
		return v.engine.Receipts(f)
	}
	f.Tenant = v.p.Tenant
	names := []string{f.Of}
	if f.Kind == receipt.OfSnapshot && f.Of != "" {
		if whole, err := v.newTag(f.Of); err == nil && whole != f.Of {
			names = []string{whole, f.Of}
		}
	}
	for _, name := range names {
		f.Of = name
		all, err := v.engine.Receipts(f)
		if err != nil || len(all) > 0 {
			return all, err
		}
	}
	return nil, nil
}

// SetPool keeps shells ready for one of the tenant's own snapshots.
func (v recordView) SetPool(ctx context.Context, tag string, size int) error {
	b, err := v.findOwn(tag)
	if err != nil {
		return err
	}
	release, err := v.admitPool(b, size)
	if err != nil {
		return err
	}
	defer release()
	return v.engine.SetPool(ctx, b.Tag, size)
}

// Pools are those of the tenant's own snapshots.
func (v recordView) Pools() []sandbox.PoolStatus {
	all := v.engine.Pools()
	if v.p.Operator() {
		return all
	}
	var out []sandbox.PoolStatus
	for _, p := range all {
		if b, err := v.engine.SnapshotBrief(p.Tag); err == nil && v.p.Sees(b.Owner) {
			out = append(out, p)
		}
	}
	return out
}

// Holdings are what the tenant has running.
func (v recordView) Holdings(owner string) (n, memoryMiB int) {
	if !v.p.Sees(owner) {
		return 0, 0
	}
	return v.engine.Holdings(owner)
}

// OverlayBytes are what the tenant's sandboxes have written to their disks.
func (v recordView) OverlayBytes(owner string) int64 {
	if !v.p.Sees(owner) {
		return 0
	}
	return v.engine.OverlayBytes(owner)
}

// Capacity is the host's, for the operator's eyes: it counts what all have.
func (v recordView) Capacity() (sandbox.Capacity, error) {
	if !v.p.Operator() {
		return sandbox.Capacity{}, v.operatorOnly("the host's capacity")
	}
	return v.engine.Capacity()
}
