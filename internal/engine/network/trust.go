package network

import (
	"context"
	"time"
)

// trustTimeout is short: a guest that does not answer must not hold up the others' wires.
const trustTimeout = 2 * time.Second

// trust has a wire's guest trust the certificate that forkd-net has now, if it was given
// another: forkd-net was started again, or the policy sets headers since. A guest that is still
// being made is given it with its identity.
func (w *Wires) trust(ctx context.Context, x *Wire) {
	w.mu.Lock()
	ca, vm := x.ca, x.vm
	needs := vm != nil && ca != "" && ca != x.given && w.cfg.Trust != nil
	w.mu.Unlock()
	if !needs {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, trustTimeout)
	defer cancel()
	if err := w.cfg.Trust(ctx, x.sandbox, ca); err != nil {
		w.cfg.Log.Warn("a guest does not trust forkd-net: hosts that headers are set on fail in it",
			"sandbox", x.sandbox, "err", err)
		return
	}
	w.mu.Lock()
	x.given = ca
	w.mu.Unlock()
}
