package op

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/guestdiff"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
	"github.com/forkd/forkd/internal/leaf/membudget"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// diffTimeout bounds a comparison. Guests with very many files take long.
const diffTimeout = 5 * time.Minute

// DiffSnapshots compares the content of two snapshots. It restores a child of each, which reports
// its content. The child gets no identity, so it stays as it was in the snapshot, except for the
// work of reporting. It is not listed, and it is ended afterwards.
func (o *Ops) DiffSnapshots(ctx context.Context, req sandbox.DiffRequest) (sandbox.SnapshotDiff, error) {
	start := o.cfg.Now()
	before, after, limit := req.Before, req.After, req.Limit
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.SnapshotDiff{}, err
	}
	defer done()
	leave, err := o.Drain.Enter()
	if err != nil {
		return sandbox.SnapshotDiff{}, err
	}
	defer leave()
	if limit < 0 || limit > sandbox.MaxDiffList {
		return sandbox.SnapshotDiff{},
			sandbox.Errorf(sandbox.ErrInvalid, "", "limit is %d, want at most %d", limit, sandbox.MaxDiffList)
	}
	if limit == 0 {
		limit = guestdiff.DefaultLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, diffTimeout,
		sandbox.Errorf(sandbox.ErrTimeout, "", "comparison timed out after %s", diffTimeout))
	defer cancel()
	alike, err := o.sameImage(ctx, before, after)
	if err != nil {
		return sandbox.SnapshotDiff{}, fmt.Errorf("compare %s with %s: %w", before, after, err)
	}
	probes := []*probe{{e: o, tag: before, owner: req.Owner, changesOnly: alike},
		{e: o, tag: after, owner: req.Owner, changesOnly: alike}}
	for _, w := range probes {
		defer w.undo.Run()
	}
	o.traffic.Enter()
	defer o.traffic.Leave()
	var both sync.WaitGroup
	for _, w := range probes {
		both.Go(func() { w.err = w.open(ctx) })
	}
	both.Wait()
	for _, w := range probes {
		if w.err != nil {
			return sandbox.SnapshotDiff{}, fmt.Errorf("compare %s with %s: %w", before, after, w.explain(ctx, w.err))
		}
	}
	d, err := guestdiff.Compare(ctx, probes[0], probes[1], limit, keepFor(ctx))
	if err != nil {
		return sandbox.SnapshotDiff{}, fmt.Errorf("compare %s with %s: %w", before, after, probes[1].explain(ctx, err))
	}
	return sandbox.SnapshotDiff{Before: before, After: after, Diff: d, Took: o.cfg.Now().Sub(start)}, nil
}

// keepFor charges memory kept by the diff to the request of a context.
func keepFor(ctx context.Context) guestdiff.Keep {
	account := membudget.From(ctx)
	return func(n int) bool {
		if n < 0 {
			account.Release(int64(-n))
			return true
		}
		return account.Charge(int64(n))
	}
}

// sameImage reports whether two snapshots come from the same image. Its files then need no
// comparison.
func (o *Ops) sameImage(ctx context.Context, tags ...string) (bool, error) {
	var digests []string
	for _, tag := range tags {
		info, err := o.catalog.Get(tag)
		if err != nil {
			return false, err
		}
		digests = append(digests, info.ImageDigest)
	}
	return digests[0] != "" && digests[0] == digests[1], nil
}

// probe is a child that reports the content of its snapshot.
type probe struct {
	e   *Ops
	tag string
	// owner is the owner of the child.
	owner string
	m     *launch.VM
	// changesOnly requests only the files that differ from the image.
	changesOnly bool
	stream      *connect.ServerStreamForClient[agentv1.InventoryPart]
	first       bool // the stream is at its first part
	undo        undo.Stack
	err         error
}

// open restores the child and waits for the first part of its report.
func (w *probe) open(ctx context.Context) error {
	src, err := w.e.openForkSource(ctx, w.tag)
	if err != nil {
		return err
	}
	w.undo.Push(src.Close)
	// If the agent lists its capabilities, the inventory must be among them. An older agent lists
	// none, so it is asked anyway.
	if len(src.Agent.Capabilities) > 0 && !src.Agent.Can(agentproto.CanInventory) {
		return w.agentOld()
	}
	release, err := w.e.admission.VM(oneOfMany(w.e.cfg.ChildMemory, src))
	if err != nil {
		return err
	}
	w.undo.Push(release)
	take := func() *launch.VM { return w.e.pools.Take(src) }
	if w.m, err = w.e.launcher.Launch(ctx, src, w.owner, take); err != nil {
		return err
	}
	w.undo.Push(func() { w.m.Discard() })
	w.e.launcher.Populate(ctx, src, w.m, 1)
	agent := w.m.NewAgent()
	w.undo.Push(func() { agent.Close() })
	return w.ask(ctx, agent)
}

// ask retries until there is an answer. Just after a restore the guest may still be resetting its
// vsock transport and drop a connection.
func (w *probe) ask(ctx context.Context, agent *agentclient.Client) error {
	limit := w.e.cfg.IdentityTimeout
	late := time.Now().Add(limit)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		s, err := agent.Inventory(ctx, w.changesOnly)
		if err == nil {
			if s.Receive() {
				w.stream, w.first = s, true
				w.undo.Push(func() { s.Close() })
				return nil
			}
			err = s.Err()
			s.Close()
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			return fmt.Errorf("%w: it is empty", guestdiff.ErrGuest)
		case connect.CodeOf(err) != connect.CodeUnavailable, !w.m.Alive():
			return err
		case time.Now().After(late):
			return sandbox.Errorf(sandbox.ErrTimeout, "", "a child of %s timed out after %s", w.tag, limit)
		}
		ctxsleep.For(ctx, wait)
	}
}

// Next implements guestdiff.Source.
func (w *probe) Next() (*agentv1.InventoryPart, error) {
	if w.first || w.stream.Receive() {
		w.first = false
		return w.stream.Msg(), nil
	}
	if err := w.stream.Err(); err != nil {
		return nil, sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonChildBrokeOff,
			"a child of %s closed the connection: %w", w.tag, err)
	}
	return nil, io.EOF
}

// explain converts an error for the caller.
func (w *probe) explain(ctx context.Context, err error) error {
	var remote *connect.Error
	if errors.As(err, &remote) && remote.Code() == connect.CodeDeadlineExceeded {
		awaitDeadline(ctx)
	}
	switch {
	case context.Cause(ctx) != nil:
		return sandbox.Ended(ctx, err)
	case errors.Is(err, guestdiff.ErrNoRoom):
		return sandbox.Errorf(sandbox.ErrBusy, "",
			"the differences exceed the daemon's memory for requests: lower the limit, or read open responses")
	case errors.Is(err, guestdiff.ErrGuest):
		return sandbox.Errorf(sandbox.ErrGuestGone, "", "%w", err)
	case errors.As(err, &remote) && remote.Code() == connect.CodeUnimplemented:
		return w.agentOld()
	case errors.As(err, &remote) && !errors.Is(err, sandbox.ErrGuestGone):
		return sandbox.Errorf(sandbox.ErrGuestGone, "", "a child of %s: %w", w.tag, err)
	}
	return err
}

// awaitDeadline waits for an imminent deadline. The guest knows it and may notice it first.
func awaitDeadline(ctx context.Context) {
	if at, ok := ctx.Deadline(); ok && time.Until(at) < deadlineSkew {
		<-ctx.Done()
	}
}

// deadlineSkew is how much earlier than the host a trusted guest may notice a deadline.
const deadlineSkew = time.Second

func (w *probe) agentOld() error {
	return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonAgentOld,
		"the agent in snapshot %s is too old to list its content", w.tag)
}
