package netd

import (
	"sync"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// Bounds of what waits for the daemon.
const (
	untoldKinds = 8    // lines of a VM; all that is beyond is one more for each verdict
	untoldMax   = 1024 // lines of all VMs; what is beyond is only counted
)

// untold are refusals that the daemon has not asked for yet, which may not be there while VMs run on.
// Those that are alike are one line with their number.
type untold struct {
	mu    sync.Mutex // guards what follows
	lines map[refusal]*control.Line
	kinds map[string]int // of a VM, in lines
	lost  int            // refusals beyond the bounds
}

// add keeps a line if it is a refusal of ours.
func (u *untold) add(l control.Line) {
	switch l.Verdict {
	case control.Denied, control.Limited, control.Broken:
	default:
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	l.Count = max(l.Count, 1)
	if u.lines[kindOf(l)] == nil && u.kinds[l.VM] >= untoldKinds {
		l = control.Line{Time: l.Time, VM: l.VM, Sandbox: l.Sandbox, Owner: l.Owner, Verdict: l.Verdict,
			Name: control.Others, Count: l.Count}
	}
	k := kindOf(l)
	switch known := u.lines[k]; {
	case known != nil:
		known.Count += l.Count
	case len(u.lines) >= untoldMax:
		u.lost += l.Count
	default:
		u.lines[k] = &l
		u.kinds[l.VM]++
	}
}

// take hands over all there are, and how many are in none of the lines.
func (u *untold) take() (all []control.Line, lost int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, l := range u.lines {
		all = append(all, *l)
	}
	lost = u.lost
	u.lines, u.kinds, u.lost = map[refusal]*control.Line{}, map[string]int{}, 0
	return all, lost
}
