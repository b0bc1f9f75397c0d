package op

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// newVM gives a sandbox another VM, in a rollback and in a resume: one that is restored from a
// snapshot and told that it is this sandbox. Until it is the sandbox's a failure, or the end of the
// daemon, costs this VM only.
type newVM struct {
	e    *Ops
	tag  string // of the snapshot
	b    *sandboxes.Sandbox
	was  sandbox.Info // the sandbox until now
	f    *forkOp
	next child // the VM
	undo undo.Stack
	same bool // the machine stays the same, as in a resume
}

// step is a part of an operation whose name is in its errors.
type step struct {
	name string
	do   func(context.Context) error
}

// from has the VM made from a snapshot, which is closed at the end.
func (n *newVM) from(src *launch.Source, start time.Time) {
	n.undo.Push(src.Close)
	n.next.trace = n.e.newTrace(start)
	n.next.trace.mark("turn")
	n.next.bounds = vmproc.BoundsOf(n.was)
	n.f = &forkOp{e: n.e, req: sandbox.ForkRequest{Tag: n.tag, N: 1}, start: start, src: src}
}

// steps does what the operation is, for as long as there is a sandbox.
func (n *newVM) steps(ctx context.Context, all ...step) error {
	n.e.traffic.Enter()
	defer n.e.traffic.Leave()
	defer n.e.pools.Wake()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.b.Life(), func() { cancel(context.Cause(n.b.Life())) })()
	for _, s := range all {
		if err := s.do(ctx); err != nil {
			return sandbox.Ended(ctx, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return nil
}

// launch restores the VM and lets it begin. It belongs to nobody in the journal. restored is called in between.
func (n *newVM) launch(ctx context.Context, restored func()) error {
	err := n.f.restoreInto(ctx, &n.next)
	n.next.trace.mark("restore")
	restored()
	if err == nil {
		_, err = n.f.enter(ctx, &n.next)
	}
	return err
}

// introduce tells the VM who it is, and calls told. On failure it goes.
func (n *newVM) introduce(ctx context.Context, told func()) error {
	who := n.b.Who()
	who.SameMachine = n.same
	err := n.f.introduce(ctx, &n.next, who)
	told()
	if err == nil {
		n.e.wires.Attach(ctx, n.next.wire, n.next.m.Proc, n.next.m.Lent)
		return nil
	}
	err = n.reason(ctx, err)
	n.drop()
	return err
}

// reason is why the VM did not do what it was asked: its end, if that was it.
func (n *newVM) reason(ctx context.Context, err error) error {
	m := n.next.m
	if !m.Alive() || ctx.Err() == nil && gone(err) && m.WaitEnd(50*time.Millisecond) {
		return m.EndError()
	}
	return err
}

// drop ends a VM that is not to be.
func (n *newVM) drop() {
	n.next.m.Discard()
}
