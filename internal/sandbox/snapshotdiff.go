package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/agentproto/agentclient"
	"github.com/forkd/forkd/internal/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guestdiff"
	"github.com/forkd/forkd/internal/undo"
)

// SnapshotDiff is what differs in the second snapshot from the first.
type SnapshotDiff struct {
	Before, After string // tags
	guestdiff.Diff
	Took time.Duration
}

// diffTimeout bounds a comparison: guests with very many files take long.
const diffTimeout = 5 * time.Minute

// MaxDiffList is the largest limit of a DiffSnapshots.
const MaxDiffList = 10_000

// DiffSnapshots compares what is in two snapshots. A child of each is restored
// and tells what is in it. It gets no identity, so that it is as it was in the
// snapshot but for the moment that telling takes; it is listed nowhere, and ended.
// limit is how long each list may be; 0 means guestdiff.DefaultLimit.
func (e *Engine) DiffSnapshots(ctx context.Context, before, after string, limit int) (SnapshotDiff, error) {
	start := e.cfg.Now()
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return SnapshotDiff{}, err
	}
	defer done()
	if limit < 0 || limit > MaxDiffList {
		return SnapshotDiff{}, problem(ErrInvalid, "", "limit is %d, want at most %d", limit, MaxDiffList)
	}
	if limit == 0 {
		limit = guestdiff.DefaultLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, diffTimeout, problem(ErrTimeout, "", "not compared within %s", diffTimeout))
	defer cancel()
	alike, err := e.sameImage(ctx, before, after)
	if err != nil {
		return SnapshotDiff{}, fmt.Errorf("compare %s with %s: %w", before, after, err)
	}
	witnesses := []*witness{{e: e, tag: before, changesOnly: alike}, {e: e, tag: after, changesOnly: alike}}
	for _, w := range witnesses {
		defer w.undo.Run()
	}
	e.traffic.enter()
	defer e.traffic.leave()
	var both sync.WaitGroup
	for _, w := range witnesses {
		both.Go(func() { w.err = w.open(ctx) })
	}
	both.Wait()
	for _, w := range witnesses {
		if w.err != nil {
			return SnapshotDiff{}, fmt.Errorf("compare %s with %s: %w", before, after, w.explain(ctx, w.err))
		}
	}
	d, err := guestdiff.Compare(ctx, witnesses[0], witnesses[1], limit)
	if err != nil {
		return SnapshotDiff{}, fmt.Errorf("compare %s with %s: %w", before, after, witnesses[1].explain(ctx, err))
	}
	return SnapshotDiff{Before: before, After: after, Diff: d, Took: e.cfg.Now().Sub(start)}, nil
}

// sameImage tells whether two snapshots come of one image, whose files need no comparison.
func (e *Engine) sameImage(ctx context.Context, tags ...string) (bool, error) {
	var digests []string
	for _, tag := range tags {
		info, err := e.SnapshotInfo(ctx, tag)
		if err != nil {
			return false, err
		}
		digests = append(digests, info.ImageDigest)
	}
	return digests[0] != "" && digests[0] == digests[1], nil
}

// witness is a child that tells what is in its snapshot.
type witness struct {
	e   *Engine
	tag string
	m   *machine
	// changesOnly asks for files that are not as in the image.
	changesOnly bool
	stream      *connect.ServerStreamForClient[agentv1.InventoryPart]
	first       bool // the stream stands at its first part
	undo        undo.Stack
	err         error
}

// open restores the child and waits for the first part of its account.
func (w *witness) open(ctx context.Context) error {
	src, err := w.e.openForkSource(ctx, w.tag)
	if err != nil {
		return err
	}
	w.undo.Push(src.close)
	release, err := w.e.memory.admit(w.e.cfg.ChildMemory)
	if err != nil {
		return err
	}
	w.undo.Push(release)
	f := &forking{e: w.e, req: ForkRequest{Tag: w.tag, N: 1}, start: w.e.cfg.Now(), src: src}
	b := &birth{index: 1}
	if err := f.restoreInto(ctx, b); err != nil {
		return err
	}
	w.m = b.m
	w.undo.Push(func() { w.e.discard(w.m) })
	f.populate(ctx, b)
	agent := newAgent(w.m)
	w.undo.Push(func() { agent.Close() })
	return w.ask(ctx, agent)
}

// ask tries until there is an answer: just after a restore the guest may still
// be resetting its vsock transport and drop a connection.
func (w *witness) ask(ctx context.Context, agent *agentclient.Client) error {
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
		case connect.CodeOf(err) != connect.CodeUnavailable, !alive(w.m):
			return err
		case time.Now().After(late):
			return problem(ErrTimeout, "", "no answer of a child of %s within %s", w.tag, limit)
		}
		sleep(ctx, wait)
	}
}

// Next implements guestdiff.Source.
func (w *witness) Next() (*agentv1.InventoryPart, error) {
	if w.first || w.stream.Receive() {
		w.first = false
		return w.stream.Msg(), nil
	}
	if err := w.stream.Err(); err != nil {
		return nil, problem(ErrGuestGone, "try again; `forkd logs` of a child shows its console", "a child of %s broke off: %w", w.tag, err)
	}
	return nil, io.EOF
}

// explain turns an error into what the caller should know.
func (w *witness) explain(ctx context.Context, err error) error {
	var remote *connect.Error
	switch {
	case context.Cause(ctx) != nil:
		return ended(ctx, err)
	case errors.Is(err, guestdiff.ErrGuest):
		return problem(ErrGuestGone, "", "%w", err)
	case errors.As(err, &remote) && remote.Code() == connect.CodeUnimplemented:
		return problem(ErrConflict, "make it again from an image that this version of forkd built", "the agent in snapshot %s is older and cannot tell what is in it", w.tag)
	case errors.As(err, &remote) && !errors.Is(err, ErrGuestGone):
		return problem(ErrGuestGone, "", "a child of %s: %w", w.tag, err)
	}
	return err
}
