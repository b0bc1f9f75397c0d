package tenancy

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// admitPool lets a tenant keep size shells ready for its snapshot, instead of the present number. They count as
// pending until release is called; the engine lists them by then.
func (v *lens) admitPool(b sandbox.SnapshotBrief, size int) (release func(), err error) {
	if size <= 0 || v.p.Operator() {
		return func() {}, nil
	}
	size = min(size, sandbox.MaxPool+1) // the engine refuses more, and the product stays small
	shells := holding{size, size * b.MemoryMiB}
	l := &v.t.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := v.roomLocked(shells, v.heldLocked(b.Tag)); err != nil {
		return nil, err
	}
	return l.pendLocked(v.p.Tenant, shells), nil
}

// heldLocked returns a tenant's existing and pending holdings, without the pool of the tag besides.
func (v *lens) heldLocked(besides string) holding {
	n, memoryMiB := v.engine.Sandboxes.Holdings(v.p.Tenant)
	return holding{n, memoryMiB}.plus(v.ofPools(besides)).plus(v.t.ledger.pending[v.p.Tenant])
}

// ofPools counts the shells in a tenant's pools by their wanted size, because a pool refills itself. The daemon's
// default pools belong to the operator.
func (v *lens) ofPools(besides string) (sum holding) {
	for _, p := range v.engine.Pools.Pools() {
		if !p.Set || p.Wanted == 0 || p.Tag == besides {
			continue
		}
		if b, err := v.engine.Snapshots.SnapshotBrief(p.Tag); err == nil && b.Owner == v.p.Tenant {
			sum = sum.plus(holding{p.Wanted, p.Wanted * p.Shape.MemoryMiB})
		}
	}
	return sum
}
