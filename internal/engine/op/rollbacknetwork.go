package op

import (
	"context"

	"github.com/forkd/forkd/internal/engine/network"
)

// bind has the wire of the new VM made, beside its restore: the sandbox keeps its policy, and what its old VM has
// open ends with that one. A wire whose VM does not become the sandbox's is released.
// A tap follows when the old VM has ended, as the kernel gives it to one process at a time.
func (r *rollbackOp) bind(ctx context.Context) (*network.Wire, error) {
	info := r.b.Info()
	if info.Network.Tap != "" {
		return nil, nil
	}
	of := sourceOf(r.f.src, info.Owner, info.Limits, info.Kin)
	wires, err := r.e.wires.Bind(ctx, of, info.Network.Effective, info.ID)
	if err != nil {
		return nil, err
	}
	r.undo.Push(func() {
		if r.b.Info().Network.Wire != wires[0].Name() {
			r.e.wires.Release(wires[0])
		}
	})
	return wires[0], nil
}

// endOldVM ends the VM that was. If it has a tap the new one takes that over, and may send only
// then.
func (r *rollbackOp) endOldVM(ctx context.Context) {
	n := r.b.Info().Network
	if n.Tap == "" {
		r.old.End()
		return
	}
	proc := r.next.m.Proc
	err := r.e.wires.TakeOver(ctx, n.Tap, r.b.ID(), proc, r.old.End)
	if err == nil {
		err = proc.OpenNet(ctx, nil)
	} else {
		_ = proc.OpenNet(ctx, nil) // what it tries is refused, and does not hang
	}
	if err != nil {
		r.e.cfg.Logger.Warn("a sandbox was rolled back and has lost its tap", "sandbox", r.b.ID(), "tap", n.Tap, "err", err)
	}
}

// settleNetwork makes up for a change of the policy while the new VM was being made.
func (r *rollbackOp) settleNetwork(ctx context.Context) {
	if err := r.e.wires.Settle(ctx, r.b.Info().Network); err != nil {
		r.e.cfg.Logger.Warn("a policy that changed meanwhile", "sandbox", r.b.ID(), "err", err)
	}
}
