package netd

import (
	"sync"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// tree is the bandwidth that the VMs of a tree of forks have together.
type tree struct {
	in, out *meter
	rate    int64 // bytes a second each way
	vms     int   // that are bound; guarded by trees.mu
}

// trees are those of which a VM is bound. A tree's rate is a part of its key: a binding cannot change
// what others of the tree are held to.
type trees struct {
	mu  sync.Mutex // taken under a Server's; takes no other
	all map[control.Tree]*tree
}

// join is called for each VM that is bound; leave must follow. It is nil of a VM whose tree has no limit.
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
