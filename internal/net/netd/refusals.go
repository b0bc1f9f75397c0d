package netd

import (
	"sync"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// refusalsMax is how many kinds of refusals of a VM can be read in the guest and through the API.
const refusalsMax = 64

// refusals are a VM's last ones.
type refusals struct {
	mu   sync.Mutex
	last []control.Line // oldest first
}

func (r *refusals) add(l control.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := kindOf(l)
	for i := range r.last {
		if kindOf(r.last[i]) != k {
			continue
		}
		l.Count = max(r.last[i].Count, 1) + 1
		r.last = append(r.last[:i], r.last[i+1:]...)
		break
	}
	if len(r.last) >= refusalsMax {
		r.last = append(r.last[:0], r.last[1:]...)
	}
	r.last = append(r.last, l)
}

// list is newest first.
func (r *refusals) list() []control.Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]control.Line, 0, len(r.last))
	for i := len(r.last) - 1; i >= 0; i-- {
		l := r.last[i]
		l.Time = l.Time.Round(time.Millisecond)
		all = append(all, l)
	}
	return all
}
