package network

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/sys/unixfd"
)

// batch is the number of VMs bound by one request to forkd-net, limited by the descriptors in one
// message.
const batch = 64

// Source describes the origin of VMs.
type Source struct {
	Owner string               // tenant of the sandboxes; empty for the operator
	Tag   string               // snapshot that they are forked from; empty if they boot
	Facts []netpolicy.Exported // names the snapshot's guest had resolved
	// Tree returns the fork tree of a sandbox's VM, for trees with a bandwidth limit. If nil, there
	// is no such tree.
	Tree func(sandbox string) sandbox.NetTree
	// Member returns the place of a sandbox in a private network. May be nil.
	Member func(sandbox string) *sandbox.Member
	// Unconfined is set if the VM exists and could connect a socket passed to it to any address.
	Unconfined bool
}

// Bind makes wires for new VMs, one for each sandbox, all of one source and with one policy. If the
// policy allows no traffic, the VMs need no wires, and they are nil, except for members of private
// networks. Bind does not wait for
// forkd-net; Wire.Await does. A request still running when ctx ends is abandoned. If forkd-net
// cannot bind a wire now, it does so later. Bind returns an error only if it gets no random bytes.
func (w *Wires) Bind(ctx context.Context, of Source, spec netpolicy.Spec, ids ...string) ([]*Wire, error) {
	all := make([]*Wire, len(ids))
	if sandbox.NameOf(spec) == sandbox.PolicyNone && of.Member == nil || w.cfg.Connect == nil {
		return all, nil
	}
	known := facts{of.Facts, time.Now()}
	var asked chan struct{}
	for i, id := range ids {
		if i%batch == 0 {
			asked = make(chan struct{})
		}
		name, err := w.name(id)
		if err != nil {
			return nil, err
		}
		all[i] = &Wire{name: name, sandbox: id, owner: of.Owner, tag: of.Tag, facts: known, asked: asked, spec: spec,
			handover: w.cfg.Confined && !of.Unconfined, tree: of.treeOf(id), member: of.memberOf(id)}
	}
	w.mu.Lock()
	for _, x := range all {
		w.wires[x.name] = x // before the request: a wire released early is then never bound
	}
	w.mu.Unlock()
	w.watchers.Go(func() { w.bindNew(ctx, all) })
	return all, nil
}

func (s Source) treeOf(id string) sandbox.NetTree {
	if s.Tree == nil {
		return sandbox.NetTree{}
	}
	return s.Tree(id)
}

func (s Source) memberOf(id string) *sandbox.Member {
	if s.Member == nil {
		return nil
	}
	return s.Member(id)
}

// BindNow is like Bind for one wire, but waits for forkd-net.
func (w *Wires) BindNow(ctx context.Context, of Source, spec netpolicy.Spec, id string) (*Wire, error) {
	wires, err := w.Bind(ctx, of, spec, id)
	if err != nil {
		return nil, err
	}
	_ = wires[0].Await(ctx) // missing steps follow later
	return wires[0], nil
}

// bindNew asks forkd-net to serve new wires. Each wire waits only for its own batch.
func (w *Wires) bindNew(ctx context.Context, all []*Wire) {
	b := newBinder(w, w.await(ctx))
	if b.port == nil && ctx.Err() == nil {
		w.cfg.Log.Warn("sandboxes get their network later: forkd-net does not answer", "sandboxes", len(all))
	}
	failed := b.port == nil
	for some := range slices.Chunk(all, batch) {
		if !failed {
			err := b.batch(ctx, some)
			failed = err != nil
			if failed && ctx.Err() == nil {
				w.cfg.Log.Warn("sandboxes have no network: forkd-net did not take them", "sandboxes", len(all), "err", err)
			}
		}
		close(some[0].asked)
	}
}

// Adopt takes over an earlier daemon's wire of a running VM.
func (w *Wires) Adopt(name string, of Source, spec netpolicy.Spec, id string, vm VM) {
	if name == "" || w.cfg.Connect == nil {
		return
	}
	x := &Wire{name: name, sandbox: id, owner: of.Owner, tag: of.Tag, tree: of.treeOf(id), spec: spec, vm: vm,
		member: of.memberOf(id), handover: !of.Unconfined}
	w.mu.Lock()
	w.wires[name] = x
	w.mu.Unlock()
	w.watch(x, vm)
}

// binder binds wires over one connection.
type binder struct {
	w     *Wires
	port  sandbox.NetPort
	epoch int // of the connection
}

func newBinder(w *Wires, port sandbox.NetPort) binder {
	w.mu.Lock()
	defer w.mu.Unlock()
	return binder{w, port, w.epoch}
}

// all binds wires, in batches.
func (b binder) all(ctx context.Context, wires []*Wire) error {
	for some := range slices.Chunk(wires, batch) {
		if err := b.batch(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// batch binds the wires that still exist and are not bound yet. It rebinds wires with a handover
// taken back since. A new connection may have bound some of them already.
func (b binder) batch(ctx context.Context, wires []*Wire) error {
	w := b.w
	w.mu.Lock()
	wires = slices.DeleteFunc(slices.Clone(wires), func(x *Wire) bool {
		return w.wires[x.name] != x || x.bound && !x.takenBackLocked()
	})
	w.mu.Unlock()
	if err := b.forgetTakenBack(wires); err != nil || len(wires) == 0 {
		return err
	}
	ours := make([]end, len(wires))
	bindings := make([]sandbox.NetBinding, len(wires))
	defer func() {
		for i := range wires {
			ours[i].close()
			end{bindings[i].Wire}.close()
		}
	}()
	known := leftOf(time.Now())
	specs := resolvedAll(w, wires)
	w.mu.Lock()
	for i, x := range wires {
		bindings[i] = sandbox.NetBinding{VM: x.name, Sandbox: x.sandbox, Tenant: x.owner, Tag: x.tag, Spec: specs[i],
			Tree: x.tree, Member: x.member,
			Facts: known(x.facts), Handover: x.handover}
		x.told = x.told || x.handover
	}
	w.mu.Unlock()
	for i := range wires {
		var err error
		if ours[i].f, bindings[i].Wire, err = unixfd.Pair(unix.SOCK_SEQPACKET, "wire"); err != nil {
			return err
		}
	}
	soon, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cas, err := b.port.Bind(soon, bindings)
	if err != nil {
		b.unsure(wires)
		return fmt.Errorf("bind %d VMs: %w", len(wires), err)
	}
	return b.bound(ctx, wires, ours, bindings, cas)
}

// unsure records that forkd-net may have bound the wires after all, for instance if the caller
// stopped waiting for its answer. Releasing such a wire then releases it at forkd-net too. unsure
// does this now for wires released meanwhile.
func (b binder) unsure(wires []*Wire) {
	w := b.w
	var gone []*Wire
	w.mu.Lock()
	for _, x := range wires {
		if w.wires[x.name] != x {
			gone = append(gone, x)
		}
		x.unsure = true
	}
	w.mu.Unlock()
	for _, x := range gone {
		if !w.forget(b.port, x.name) {
			return // it does not answer, so it would not forget the others either
		}
	}
}

// bound records that forkd-net serves the wires. It handles wires that were released or got another
// policy meanwhile.
func (b binder) bound(
	ctx context.Context, wires []*Wire, ours []end, as []sandbox.NetBinding, cas []string) error {
	w := b.w
	var gone, changed, again []*Wire
	w.mu.Lock()
	for i, x := range wires {
		switch {
		case w.wires[x.name] != x:
			gone = append(gone, x)
		case w.epoch == b.epoch && as[i].Handover != x.handover: // taken back meanwhile: the end is not used
			x.bound = true
			again = append(again, x)
		case w.epoch == b.epoch:
			x.end, ours[i] = ours[i], x.end
			x.turn++
			x.bound, x.ca = true, cas[i]
			// A policy with secrets is sent again: one may have been rotated meanwhile.
			if !sameSpec(x.spec, as[i].Spec) {
				changed = append(changed, x)
			}
		}
	}
	w.mu.Unlock()
	for _, x := range gone {
		w.forget(b.port, x.name)
	}
	for _, x := range changed {
		if err := w.update(b.port, x); err != nil {
			return err
		}
	}
	if len(again) > 0 { // only once: a handover that was taken back stays so
		return b.batch(ctx, again)
	}
	return nil
}

// update sends a wire's policy to forkd-net.
func (w *Wires) update(port sandbox.NetPort, x *Wire) error {
	x.updating.Lock() // the newest values of secrets arrive last
	defer x.updating.Unlock()
	w.mu.Lock()
	spec := x.spec
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	ca, err := port.Update(ctx, x.name, resolved(w, x.owner, spec))
	if err != nil {
		return err
	}
	w.mu.Lock()
	x.ca = ca
	w.mu.Unlock()
	w.trust(ctx, x)
	return nil
}

// Update changes the policy of a VM's wire. If forkd-net is unavailable, Update returns an error,
// and the new policy applies once forkd-net is back.
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

// Port returns the connection to forkd-net.
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

// Serves returns an error unless forkd-net serves a wire.
func Serves(w *Wires, x *Wire) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x == nil || !x.bound {
		return starting()
	}
	return nil
}

func starting() error {
	return sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonNetStarting,
		"forkd-net does not answer: it is being started again")
}

// unboundLocked returns the wires forkd-net does not serve, or serves with a handover taken back
// since. The caller holds Wires.mu.
func (w *Wires) unboundLocked() []*Wire {
	var out []*Wire
	for _, name := range slices.Sorted(maps.Keys(w.wires)) {
		if x := w.wires[name]; !x.bound || x.takenBackLocked() {
			out = append(out, x)
		}
	}
	return out
}

// Settle updates a wire that does not have its sandbox's policy.
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
