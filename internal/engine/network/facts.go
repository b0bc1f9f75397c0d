package network

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// facts are names that a guest had resolved when its VM was made, with how long each held then.
// Who is forked from one snapshot shares one list, which never changes.
type facts struct {
	list []netpolicy.Exported
	at   time.Time
}

// left is what holds still. A VM that is bound anew must not know its names for longer.
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

// leftOf is left, worked out once for neighbours that share a list.
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

// Facts are the names that a VM's guest has resolved, at most most of them: those that hold
// longest. There are none while forkd-net does not answer; its clones resolve anew.
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
		w.cfg.Log.Warn("names that a guest has resolved: its clones resolve anew", "wire", name, "err", err)
		return nil
	}
	slices.SortFunc(all, func(a, b netpolicy.Exported) int {
		return cmp.Or(b.Seconds-a.Seconds, cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
	})
	return all[:min(len(all), most)]
}

// factsTimeout is short: a branch waits for it.
const factsTimeout = time.Second
