package tenancy

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// admitPool lets a tenant keep size shells ready for its snapshot, in place of those that it keeps now.
// They are pending until release is called: the engine lists them by then.
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

// heldLocked returns what a tenant has and is about to have, without the pool of the tag besides.
func (v *lens) heldLocked(besides string) holding {
	n, memoryMiB := v.engine.Holdings(v.p.Tenant)
	return holding{n, memoryMiB}.plus(v.ofPools(besides)).plus(v.t.ledger.pending[v.p.Tenant])
}

// ofPools counts the shells of a tenant's pools with their wanted size: a pool refills itself. The
// daemon's default pools are the operator's.
func (v *lens) ofPools(besides string) (sum holding) {
	for _, p := range v.engine.Pools() {
		if !p.Set || p.Wanted == 0 || p.Tag == besides {
			continue
		}
		if b, err := v.engine.SnapshotBrief(p.Tag); err == nil && b.Owner == v.p.Tenant {
			sum = sum.plus(holding{p.Wanted, p.Wanted * p.Shape.MemoryMiB})
		}
	}
	return sum
}
