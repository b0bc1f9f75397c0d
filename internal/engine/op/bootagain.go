package op

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// boot boots the parent. If the guest's kernel ends with a fault of its own, it boots once more: emulated CPUs
// lose state now and then (docs/operate/machine.md), and nothing depends on the guest yet. Every other failure stands.
func (c *createOp) boot(ctx context.Context, u *undo.Stack) (int64, error) {
	var first undo.Stack
	n, err := c.bootOnce(ctx, &first)
	if err == nil || ctx.Err() != nil || c.m == nil || !gone(err) {
		u.Push(first.Run)
		return n, err
	}
	fault := c.m.KernelFault()
	if fault == "" {
		u.Push(first.Run)
		return n, err
	}
	first.Run()
	c.m, c.wire, c.agent = nil, nil, nil
	c.progress(sandbox.Step{Name: sandbox.StepBoot,
		Note: "the guest's kernel reported a fault (" + fault + "), booting once more"})
	c.e.cfg.Logger.Warn("guest kernel reported a fault, booting once more", "tag", c.req.Tag, "fault", fault)
	return c.bootOnce(ctx, u)
}
