package network

import (
	"context"
	"fmt"
)

// handover is that of sockets to one wire's VMM. When the wire is bound it is only expected that the
// VMM is confined: what is known when it is there comes first.
type handover struct {
	*Wires
	of *Wire
}

// takenBackLocked reports that forkd-net may hand the VMM sockets, and is not to.
func (x *Wire) takenBackLocked() bool { return x.told && !x.handover }

// takeBack has nothing handed over to the VMM, which has had no end of the wire. If that is bound
// already it is bound anew; a request that is under way sees to that itself.
func (h handover) takeBack(ctx context.Context) {
	h.mu.Lock()
	was, bound, port := h.of.handover, h.of.bound, h.port
	h.of.handover = false
	var e end
	if was {
		e = h.of.takeEndLocked()
	}
	h.mu.Unlock()
	e.close()
	if !was || !bound || port == nil { // without forkd-net all is bound when there is one
		return
	}
	if err := newBinder(h.Wires, port).batch(ctx, []*Wire{h.of}); err != nil {
		h.cfg.Log.Warn("a sandbox has no network: forkd-net did not take it anew", "sandbox", h.of.sandbox, "err", err)
	}
}

// forgetTakenBack has forkd-net forget those that it may hand sockets to, and is not to any more.
func (b binder) forgetTakenBack(wires []*Wire) error {
	w := b.w
	for _, x := range wires {
		w.mu.Lock()
		is := x.takenBackLocked()
		w.mu.Unlock()
		if !is {
			continue
		}
		if !w.forget(b.port, x.name) {
			return fmt.Errorf("bind %s anew: forkd-net did not forget it", x.name)
		}
		w.mu.Lock()
		x.told = false
		x.bound = x.bound && w.epoch != b.epoch
		w.mu.Unlock()
	}
	return nil
}
