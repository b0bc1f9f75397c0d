package netd

import (
	"sync"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// refusalsMax limits the kinds of refusals of a VM that are kept for the guest and the API.
const refusalsMax = 64

// refusals holds a VM's last refusals.
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

// list returns the refusals, newest first.
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
