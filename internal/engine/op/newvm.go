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

// newVM replaces the VM of a sandbox, in a rollback and in a resume. The new VM is restored from a
// snapshot and gets this sandbox's identity. Until the sandbox takes it over, a failure or the end
// of the daemon costs only the new VM.
type newVM struct {
	e    *Ops
	tag  string // of the snapshot
	b    *sandboxes.Sandbox
	was  sandbox.Info // the sandbox until now
	f    *forkOp
	next child // the VM
	undo undo.Stack
	// secrets are those of the sandbox with its new VM.
	secrets []sandbox.HeldSecret
	same    bool // the machine identity stays the same, as in a resume
}

// step is a part of an operation. Its name appears in its errors.
type step struct {
	name string
	do   func(context.Context) error
}

// from sets the snapshot to make the VM from. It is closed at the end.
func (n *newVM) from(src *launch.Source, start time.Time) {
	n.undo.Push(src.Close)
	n.next.trace = n.e.newTrace(start)
	n.next.trace.mark("turn")
	n.next.bounds = vmproc.BoundsOf(n.was)
	n.f = &forkOp{e: n.e, req: sandbox.ForkRequest{Tag: n.tag, N: 1}, start: start, src: src}
}

// steps runs the steps of the operation while the sandbox exists.
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

// launch restores the VM and starts it. In the journal the VM has no owner. launch calls restored
// between the restore and the start.
func (n *newVM) launch(ctx context.Context, restored func()) error {
	if err := n.ownTops(); err != nil {
		restored()
		return err
	}
	err := n.f.restoreInto(ctx, &n.next)
	n.next.trace.mark("restore")
	restored()
	if err == nil {
		_, err = n.f.enter(ctx, &n.next)
	}
	return err
}

// introduce sends the VM its identity, then calls told. On failure it ends the VM.
func (n *newVM) introduce(ctx context.Context, told func()) error {
	who := n.b.Who()
	who.SameMachine = n.same
	var err error
	if n.secrets, who.Secrets, err = sandbox.RenewSecrets(n.e.cfg.Secrets, n.was.Owner, n.was.Secrets); err == nil {
		err = n.f.introduce(ctx, &n.next, who)
	}
	n.next.who.Secrets = nil
	told()
	if err == nil {
		n.e.wires.Attach(ctx, n.next.wire, n.next.m.Proc, n.next.m.Lent)
		return nil
	}
	err = n.reason(ctx, err)
	n.drop()
	return err
}

// reason returns why the VM did not do a request: its end, if that was the cause.
func (n *newVM) reason(ctx context.Context, err error) error {
	m := n.next.m
	if !m.Alive() || ctx.Err() == nil && vmproc.EndedWith(m.VM, err) {
		return m.EndError()
	}
	return err
}

// drop ends a VM that the sandbox does not take over.
func (n *newVM) drop() {
	n.next.m.Discard()
}
