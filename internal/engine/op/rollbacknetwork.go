package op

import (
	"context"

	"github.com/forkd/forkd/internal/engine/network"
)

// bind creates the wire of the new VM, in parallel with its restore. The sandbox keeps its policy;
// open connections end with the old VM. The wire is released if its VM does not become the
// sandbox's. A tap follows when the old VM has ended, as the kernel gives it to one process at a
// time.
func (r *rollbackOp) bind(ctx context.Context) (*network.Wire, error) {
	info := r.b.Info()
	if info.Network.Tap != "" {
		return nil, nil
	}
	of := sourceOf(r.f.src, info.Owner, info.Limits, info.Kin)
	of.Member = info.Network.MemberOf()
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

// endOldVM ends the old VM. If it has a tap, the new VM takes the tap over and may send only then.
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
		_ = proc.OpenNet(ctx, nil) // its packets are refused instead of hanging
	}
	if err != nil {
		r.e.cfg.Logger.Warn("a sandbox was rolled back and has lost its tap", "sandbox", r.b.ID(), "tap", n.Tap, "err", err)
	}
}

// settleNetwork applies a change of the policy made while the new VM was being created.
func (r *rollbackOp) settleNetwork(ctx context.Context) {
	if err := r.e.wires.Settle(ctx, r.b.Info().Network); err != nil {
		r.e.cfg.Logger.Warn("a policy that changed during the rollback", "sandbox", r.b.ID(), "err", err)
	}
}
