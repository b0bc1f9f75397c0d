package network

import (
	"context"
	"fmt"
)

// handover controls the handover of sockets to one wire's VMM. When the wire is bound, the VMM is
// only expected to be confined. Once the VMM exists, its actual confinement decides.
type handover struct {
	wires *Wires
	of    *Wire
}

// takenBackLocked reports whether forkd-net may still pass sockets to the VMM although its handover
// was taken back.
func (x *Wire) takenBackLocked() bool { return x.told && !x.handover }

// takeBack disables the handover of sockets to the VMM, which has no end of the wire yet. If the
// wire is already bound, takeBack rebinds it. If a bind request is running, that request rebinds
// it.
func (h handover) takeBack(ctx context.Context) {
	h.wires.mu.Lock()
	was, bound, port := h.of.handover, h.of.bound, h.wires.port
	h.of.handover = false
	var e end
	if was {
		e = h.of.takeEndLocked()
	}
	h.wires.mu.Unlock()
	e.close()
	if !was || !bound || port == nil { // without forkd-net, all wires are bound when it is back
		return
	}
	if err := newBinder(h.wires, port).batch(ctx, []*Wire{h.of}); err != nil {
		h.wires.cfg.Log.Warn("a sandbox has no network: forkd-net did not rebind it", "sandbox", h.of.sandbox, "err", err)
	}
}

// forgetTakenBack makes forkd-net forget the wires with a handover taken back since.
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
			return fmt.Errorf("rebind %s: forkd-net did not forget it", x.name)
		}
		w.mu.Lock()
		x.told = false
		x.bound = x.bound && w.epoch != b.epoch
		w.mu.Unlock()
	}
	return nil
}
