package op

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// boot boots the parent. If the guest's kernel faults by itself, boot tries once more: emulated
// CPUs occasionally lose state (docs/operate/machine.md), and no client depends on the guest yet.
// All other failures are returned.
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
