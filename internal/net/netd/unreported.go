package netd

import (
	"sync"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// Limits of refusals kept for the daemon.
const (
	unreportedKinds = 8    // lines of a VM; further kinds share one line per verdict
	unreportedMax   = 1024 // lines of all VMs; further ones are only counted
)

// unreported keeps refusals until the daemon requests them, because the daemon may be down while VMs
// run. Equal refusals share one line with a count.
type unreported struct {
	mu    sync.Mutex // guards the fields below
	lines map[refusal]*control.Line
	kinds map[string]int // lines per VM
	lost  int            // refusals beyond the limits
}

// add keeps a line if it is a refusal by forkd-net.
func (u *unreported) add(l control.Line) {
	switch l.Verdict {
	case control.Denied, control.Limited, control.Broken:
	default:
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	l.Count = max(l.Count, 1)
	if u.lines[kindOf(l)] == nil && u.kinds[l.VM] >= unreportedKinds {
		l = control.Line{Time: l.Time, VM: l.VM, Sandbox: l.Sandbox, Owner: l.Owner, Verdict: l.Verdict,
			Name: control.Others, Count: l.Count}
	}
	k := kindOf(l)
	switch known := u.lines[k]; {
	case known != nil:
		known.Count += l.Count
	case len(u.lines) >= unreportedMax:
		u.lost += l.Count
	default:
		u.lines[k] = &l
		u.kinds[l.VM]++
	}
}

// take returns all lines, and the number of refusals without a line.
func (u *unreported) take() (all []control.Line, lost int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, l := range u.lines {
		all = append(all, *l)
	}
	lost = u.lost
	u.lines, u.kinds, u.lost = map[refusal]*control.Line{}, map[string]int{}, 0
	return all, lost
}
