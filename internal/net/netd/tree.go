package netd

import (
	"sync"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// tree is the shared bandwidth of the VMs of a tree of forks.
type tree struct {
	in, out *meter
	rate    int64 // bytes per second in each direction
	vms     int   // number of bound VMs; guarded by trees.mu
}

// trees holds the trees with bound VMs. The key includes the rate, so a binding cannot change the
// limit of other VMs of the tree.
type trees struct {
	mu  sync.Mutex // taken under a Server's mu; takes no other lock
	all map[control.Tree]*tree
}

// join returns the tree of a bound VM, or nil if the tree has no limit. Call leave for each join.
func (t *trees) join(of control.Tree) *tree {
	if of.BytesPerSecond <= 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[control.Tree]*tree{}
	}
	shared := t.all[of]
	if shared == nil {
		shared = &tree{in: newMeter(of.BytesPerSecond), out: newMeter(of.BytesPerSecond), rate: of.BytesPerSecond}
		t.all[of] = shared
	}
	shared.vms++
	return shared
}

// leave forgets a tree with the last of its VMs.
func (t *trees) leave(of control.Tree) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if shared := t.all[of]; shared != nil {
		if shared.vms--; shared.vms == 0 {
			delete(t.all, of)
		}
	}
}
