package op

import (
	"context"

	"github.com/forkd/forkd/internal/engine/network"
)

// bind makes the wire of the new VM: the sandbox keeps its policy, and what its old VM has
// open ends with that one. A wire whose VM does not become the sandbox's is released.
func (r *rollbackOp) bind(ctx context.Context) (*network.Wire, error) {
	wires, err := r.e.wires.Bind(ctx, sourceOf(r.f.src), r.b.Info().Network.Effective, r.b.ID())
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

// settleNetwork makes up for a change of the policy while the new VM was being made.
func (r *rollbackOp) settleNetwork(ctx context.Context) {
	if err := r.e.wires.Settle(ctx, r.b.Info().Network); err != nil {
		r.e.cfg.Logger.Warn("a policy that changed meanwhile", "sandbox", r.b.ID(), "err", err)
	}
}
