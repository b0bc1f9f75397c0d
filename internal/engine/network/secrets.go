package network

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Policies in the journal, in snapshots and in a Wire refer to secrets by name. Only the copy that goes to forkd-net
// has the values.

// resolved returns a policy for forkd-net, with the current values of an owner's secrets.
func resolved(w *Wires, owner string, spec netpolicy.Spec) netpolicy.Spec {
	return spec.WithSecrets(func(name string) (string, error) {
		if w.cfg.Secrets == nil {
			return "", sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonSecretsOff, "this daemon keeps no secrets")
		}
		_, value, err := w.cfg.Secrets.Value(owner, name)
		return value, err
	})
}

// resolvedAll returns the policies of wires for forkd-net. It reads files, so it does not hold Wires.mu meanwhile.
func resolvedAll(w *Wires, wires []*Wire) []netpolicy.Spec {
	out := make([]netpolicy.Spec, len(wires))
	w.mu.Lock()
	for i, x := range wires {
		out[i] = x.spec
	}
	w.mu.Unlock()
	for i, x := range wires {
		out[i] = resolved(w, x.owner, out[i])
	}
	return out
}

// renew sends the policies that refer to an owner's secrets again, with the current values. If forkd-net is
// unavailable, it gets them when it is back.
func renew(w *Wires, owner string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	w.mu.Lock()
	var some []*Wire
	for _, x := range w.wires {
		if x.owner == owner && x.spec.Refers() {
			some = append(some, x)
		}
	}
	w.mu.Unlock()
	if len(some) == 0 {
		return
	}
	port := w.await(ctx)
	if port == nil {
		return
	}
	for _, x := range some {
		if err := w.update(port, x); err != nil {
			w.cfg.Log.Warn("a sandbox's network does not have the current secrets", "wire", x.name, "err", err)
		}
	}
}
