package op

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/vm/cut"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// cut makes a snapshot of each member, all of one instant. After an error all of them run on, and no snapshot is left.
func (w *groupOp) cut(ctx context.Context) error {
	random, err := w.e.random(4)
	if err != nil {
		return err
	}
	for i := range w.members {
		m := &w.members[i]
		tag := fmt.Sprintf("group-%s-%s", m.Sandbox, hex.EncodeToString(random))
		w.undo.Push(w.e.cfg.Keep(tag))
		m.branch = &branchOp{e: w.e, group: true, start: w.start, trace: w.e.newTrace(w.start),
			req: sandbox.BranchRequest{SandboxID: m.Sandbox, Owner: w.req.Owner, Tag: tag, Transient: true,
				HostPorts: w.req.HostPorts}}
	}
	defer func() {
		for _, m := range w.members {
			m.branch.undo.Run() // forks from the tag can start now
		}
	}()
	for i := range w.members {
		if err := w.prepare(ctx, &w.members[i]); err != nil {
			return err
		}
	}
	if err := w.capture(ctx); err != nil {
		return err
	}
	err = w.each(ctx, func(_ int, m *groupMember) error { return m.branch.finish(ctx) })
	if err == nil {
		for _, m := range w.members {
			m.branch.leaveReceipt(nil)
		}
	}
	return err
}

// prepare waits for a member's turn. Turns are taken in the order of the sandboxes' ids, so two forks of overlapping
// groups do not wait for each other.
func (w *groupOp) prepare(ctx context.Context, m *groupMember) error {
	if err := m.branch.prepare(ctx); err != nil {
		return err
	}
	m.branch.trace.mark("turn")
	if m.info = m.branch.b.Info(); m.info.Network.Member == nil || m.info.Network.Member.NetworkID != w.from.ID {
		return sandbox.Errorf(sandbox.ErrConflict, "", "sandbox %s has left it", m.Sandbox)
	}
	return nil
}

// capture captures all members at one instant.
func (w *groupOp) capture(ctx context.Context) error {
	limit := w.e.cfg.BranchTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the cut timed out after %s", limit))
	defer cancel()
	c, err := cut.New(len(w.members))
	if err != nil {
		return err
	}
	defer c.Break()
	served := make(chan error, 1)
	go func() { served <- c.Run(ctx) }()
	err = w.each(ctx, func(i int, m *groupMember) error {
		defer c.Leave(i)
		m.branch.cut = c.File(i)
		err := m.branch.capture(ctx)
		m.branch.trace.mark("capture")
		return err
	})
	c.Break() // a VMM that ignores the cut would leave it waiting
	if unserved := <-served; unserved != nil && (err == nil || errors.Is(err, vmm.ErrCut)) {
		err = sandbox.Errorf(sandbox.ErrConflict, "", "a member was not paused together with the others: it was too slow, "+
			"or runs since an older forkd. Try again, or pause and resume its members before")
	}
	return err
}

// each works on all members concurrently. After an error each failed member has a receipt with the reason, and the
// error is of a member that has failed by itself.
func (w *groupOp) each(ctx context.Context, do func(int, *groupMember) error) error {
	errs := make([]error, len(w.members))
	var working sync.WaitGroup
	for i := range w.members {
		working.Go(func() { errs[i] = do(i, &w.members[i]) })
	}
	working.Wait()
	var because error
	for i, err := range errs {
		if err == nil {
			continue
		}
		m := &w.members[i]
		err = fmt.Errorf("branch %s: %w", m.Sandbox, m.branch.explain(ctx, err))
		m.branch.giveUp(err)
		if because == nil || errors.Is(because, vmm.ErrCut) {
			because = err
		}
	}
	return because
}
