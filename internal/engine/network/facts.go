package network

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// facts holds the names a guest had resolved when its VM was made, with the lifetime of each at
// that time. All forks of one snapshot share one list, which never changes.
type facts struct {
	list []netpolicy.Exported
	at   time.Time
}

// left returns the names still valid. Rebinding a VM must not extend their lifetime.
func (f facts) left(now time.Time) []netpolicy.Exported {
	gone := int(now.Sub(f.at) / time.Second)
	if gone <= 0 {
		return f.list
	}
	var out []netpolicy.Exported
	for _, e := range f.list {
		if e.Seconds -= gone; e.Seconds > 0 {
			out = append(out, e)
		}
	}
	return out
}

// leftOf returns a version of left that computes a list once for consecutive VMs sharing it.
func leftOf(now time.Time) func(facts) []netpolicy.Exported {
	var last facts
	var out []netpolicy.Exported
	return func(f facts) []netpolicy.Exported {
		if len(f.list) == 0 {
			return nil
		}
		if len(last.list) == 0 || &last.list[0] != &f.list[0] || !last.at.Equal(f.at) {
			last, out = f, f.left(now)
		}
		return out
	}
}

// Facts returns the names a VM's guest has resolved, at most most of them, longest-lived first. It
// returns nil while forkd-net does not answer; the VM's clones then resolve the names again.
func (w *Wires) Facts(ctx context.Context, name string, most int) []netpolicy.Exported {
	w.mu.Lock()
	port, x := w.port, w.wires[name]
	w.mu.Unlock()
	if port == nil || x == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	all, err := port.Facts(ctx, name)
	if err != nil {
		w.cfg.Log.Warn("names resolved by a guest: its clones must resolve them again", "wire", name, "err", err)
		return nil
	}
	slices.SortFunc(all, func(a, b netpolicy.Exported) int {
		return cmp.Or(b.Seconds-a.Seconds, cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
	})
	return all[:min(len(all), most)]
}

// factsTimeout is short, because a branch waits for it.
const factsTimeout = time.Second
