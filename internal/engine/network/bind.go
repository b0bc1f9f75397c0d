package network

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/netpolicy"
	"github.com/forkd/forkd/internal/sandbox"
)

// batch is how many VMs one request to forkd-net binds: as many descriptors go with a message.
const batch = 64

// Source is what VMs are made of.
type Source struct {
	Tag   string               // of the snapshot that they are forked from; empty: they boot
	Facts []netpolicy.Exported // names that the snapshot's guest had resolved
	// Unconfined: the VM is there, and could connect a socket that it is handed to anywhere.
	Unconfined bool
}

// Bind makes wires for VMs that are about to be made, one for each of the sandboxes, all of one
// source and with one policy. Where nothing is allowed no VM needs a wire: they are nil. What
// forkd-net cannot do now follows when it can; only a lack of randomness is an error.
func (w *Wires) Bind(ctx context.Context, of Source, spec netpolicy.Spec, ids ...string) ([]*Wire, error) {
	all := make([]*Wire, len(ids))
	if sandbox.NameOf(spec) == sandbox.PolicyNone || w.cfg.Connect == nil {
		return all, nil
	}
	known := facts{of.Facts, time.Now()}
	for i, id := range ids {
		name, err := w.name(id)
		if err != nil {
			return nil, err
		}
		all[i] = &Wire{name: name, sandbox: id, tag: of.Tag, facts: known, spec: spec,
			handover: w.cfg.Confined && !of.Unconfined}
	}
	port := w.await(ctx)
	w.mu.Lock()
	for _, x := range all {
		w.wires[x.name] = x
	}
	epoch := w.epoch
	w.mu.Unlock()
	if port == nil {
		w.cfg.Log.Warn("sandboxes get their network later: forkd-net does not answer", "sandboxes", len(all))
		return all, nil
	}
	if err := w.bindAll(ctx, port, epoch, all); err != nil {
		w.cfg.Log.Warn("sandboxes have no network: forkd-net did not take them", "sandboxes", len(all), "err", err)
	}
	return all, nil
}

// Adopt takes over a wire that an earlier daemon made for a VM that still runs.
func (w *Wires) Adopt(name, of, tag string, spec netpolicy.Spec, vm VM, confined bool) {
	if name == "" || w.cfg.Connect == nil {
		return
	}
	x := &Wire{name: name, sandbox: of, tag: tag, spec: spec, vm: vm, handover: confined}
	w.mu.Lock()
	w.wires[name] = x
	w.mu.Unlock()
	w.watch(x, vm)
}

// bindAll binds wires, in batches.
func (w *Wires) bindAll(ctx context.Context, port sandbox.NetPort, epoch int, wires []*Wire) error {
	for some := range slices.Chunk(wires, batch) {
		if err := w.bindBatch(ctx, port, epoch, some); err != nil {
			return err
		}
	}
	return nil
}

func (w *Wires) bindBatch(ctx context.Context, port sandbox.NetPort, epoch int, wires []*Wire) error {
	ours := make([]end, len(wires))
	bindings := make([]sandbox.NetBinding, len(wires))
	defer func() {
		for i := range wires {
			ours[i].close()
			end{bindings[i].Wire}.close()
		}
	}()
	known := leftOf(time.Now())
	w.mu.Lock()
	for i, x := range wires {
		bindings[i] = sandbox.NetBinding{VM: x.name, Sandbox: x.sandbox, Tag: x.tag, Spec: x.spec,
			Facts: known(x.facts), Handover: x.handover}
	}
	w.mu.Unlock()
	for i := range wires {
		var err error
		if ours[i].f, bindings[i].Wire, err = pair(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cas, err := port.Bind(ctx, bindings)
	if err != nil {
		return fmt.Errorf("bind %d VMs: %w", len(wires), err)
	}
	return w.bound(port, epoch, wires, ours, bindings, cas)
}

// bound notes that forkd-net serves them. What was released, or got another policy,
// meanwhile is made up for.
func (w *Wires) bound(
	port sandbox.NetPort, epoch int, wires []*Wire, ours []end, as []sandbox.NetBinding, cas []string,
) error {
	var gone, changed []*Wire
	w.mu.Lock()
	for i, x := range wires {
		switch {
		case w.wires[x.name] != x:
			gone = append(gone, x)
		case as[i].Handover != x.handover: // Lend was told meanwhile; Attach binds it so
			x.bound, x.anew = w.epoch == epoch, true
		case w.epoch == epoch:
			x.end, ours[i] = ours[i], x.end
			x.turn++
			x.bound, x.ca = true, cas[i]
			if !sameSpec(x.spec, as[i].Spec) {
				changed = append(changed, x)
			}
		}
	}
	w.mu.Unlock()
	for _, x := range gone {
		w.forget(port, x.name)
	}
	for _, x := range changed {
		if err := w.update(port, x); err != nil {
			return err
		}
	}
	return nil
}

// update tells forkd-net a wire's policy.
func (w *Wires) update(port sandbox.NetPort, x *Wire) error {
	w.mu.Lock()
	spec := x.spec
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	ca, err := port.Update(ctx, x.name, spec)
	if err != nil {
		return err
	}
	w.mu.Lock()
	x.ca = ca
	w.mu.Unlock()
	w.trust(ctx, x)
	return nil
}

// Update changes the policy of a VM's wire. If forkd-net cannot do it now the new policy holds
// from the moment that it is there again, and the error says so.
func (w *Wires) Update(ctx context.Context, name string, spec netpolicy.Spec) error {
	port := w.await(ctx)
	w.mu.Lock()
	x := w.wires[name]
	if x == nil {
		w.mu.Unlock()
		return nil // its VM has ended
	}
	x.spec = spec
	w.mu.Unlock()
	if port == nil {
		return starting()
	}
	return w.update(port, x)
}

// Port is the connection to forkd-net.
func (w *Wires) Port(ctx context.Context) (sandbox.NetPort, error) {
	if off := w.Off(); off != "" {
		return nil, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetOff, "%s", off)
	}
	port := w.await(ctx)
	if port == nil {
		return nil, starting()
	}
	return port, nil
}

func starting() error {
	return sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonNetStarting,
		"forkd-net does not answer: it is being started again")
}

// unboundLocked are the wires that forkd-net does not serve. Wires.mu is held.
func (w *Wires) unboundLocked() []*Wire {
	var out []*Wire
	for _, name := range slices.Sorted(maps.Keys(w.wires)) {
		if x := w.wires[name]; !x.bound {
			out = append(out, x)
		}
	}
	return out
}

// Settle has a wire follow its sandbox's policy, if it does not.
func (w *Wires) Settle(ctx context.Context, n sandbox.Network) error {
	w.mu.Lock()
	x := w.wires[n.Wire]
	same := x == nil || sameSpec(x.spec, n.Effective)
	w.mu.Unlock()
	if same {
		return nil
	}
	return w.Update(ctx, n.Wire, n.Effective)
}
