package merge

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/guestdiff"
)

const (
	// MaxChanges is the largest number of changed paths in a merge.
	MaxChanges = 20_000
	// maxText is the largest text that is merged line by line, in bytes.
	maxText = 1 << 20
	// maxFile is the largest file that is copied, in bytes.
	maxFile = 4 << 30
	// maxTime limits a merge. Helpers end by themselves a little later, also without the daemon.
	maxTime = 15 * time.Minute
)

// Engine is the engine as visible to the caller.
type Engine interface {
	Get(id string) (sandbox.Info, error)
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	Kill(ctx context.Context, id string) error
	Exec(ctx context.Context, id string, req sandbox.ExecRequest) (sandbox.ExecResult, error)
	sandbox.AgentDialer
	SnapshotBrief(tag string) (sandbox.SnapshotBrief, error)
	ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error)
}

// Side is one of the two versions.
type Side string

const (
	Ours   Side = "ours"
	Theirs Side = "theirs"
)

// Request asks for a merge of theirs into ours.
type Request struct {
	Ours   string // a running sandbox
	Theirs string // a running sandbox, or a snapshot
	// Base is the tag of the common ancestor. If empty, it is found.
	Base string
	// Resolve decides all conflicts that Paths does not decide. If empty, they stay.
	Resolve Side
	Paths   map[string]Side
	DryRun  bool // change no file
}

// Change is a change of a file in ours.
type Change struct {
	Path   string
	Action string // added, modified, deleted, or merged: line by line
}

// Conflict is a path that both have changed in different ways.
type Conflict struct {
	Path string
	// Kind is content, add/add, modify/delete, type, mode, owner or file/directory.
	Kind     string
	Text     string // the whole line, as git words it
	Resolved Side   // empty if it is not resolved
}

// Skipped is a change in theirs that is not merged.
type Skipped struct{ Path, Why string }

// Result is the result of a merge.
type Result struct {
	Base      string // tag of the common ancestor
	Changes   []Change
	Conflicts []Conflict
	Skipped   []Skipped
	// Applied is set if the changes were made. It is not set for a dry run, or if a conflict is left.
	Applied bool
	// Complete is false if a guest has files that it could not look at.
	Complete bool
}

// Unresolved returns the number of conflicts that are left.
func (r Result) Unresolved() (n int) {
	for _, c := range r.Conflicts {
		if c.Resolved == "" {
			n++
		}
	}
	return n
}

// Run merges theirs into ours. If a conflict is left, it changes no file.
func Run(ctx context.Context, e Engine, req Request) (Result, error) {
	if err := req.check(); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the merge took longer than %s", maxTime))
	defer cancel()
	res, err := run(ctx, e, req)
	if err != nil && ctx.Err() != nil {
		err = sandbox.Ended(ctx, err)
	}
	return res, err
}

func (r *Request) check() error {
	r.Ours = sandbox.CanonicalID(r.Ours)
	sides := []Side{r.Resolve}
	for _, s := range r.Paths {
		sides = append(sides, s)
	}
	for i, s := range sides {
		if s != Ours && s != Theirs && (s != "" || i > 0) {
			return sandbox.Errorf(sandbox.ErrInvalid, "", "a conflict is resolved as %q, want ours or theirs",
				sandbox.Clip(string(s)))
		}
	}
	if r.Ours == sandbox.CanonicalID(r.Theirs) {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "sandbox %s cannot be merged into itself", sandbox.Clip(r.Ours))
	}
	return nil
}

func run(ctx context.Context, e Engine, req Request) (Result, error) {
	names, err := find(ctx, e, req)
	if err != nil {
		return Result{}, err
	}
	res := Result{Base: names.base.Tag, Complete: true}
	if names.merged {
		res.Applied = !req.DryRun
		return res, nil
	}
	sides, err := openAll(ctx, e, names)
	defer sides.close()
	if err != nil {
		return Result{}, err
	}
	found, err := sides.compare(ctx)
	if err != nil {
		return Result{}, err
	}
	p := plan{sides: sides, req: req, res: res}
	p.res.Complete = found.Complete
	if err := p.judgeAll(ctx, found); err != nil {
		return Result{}, err
	}
	if req.DryRun || p.res.Unresolved() > 0 {
		return p.res, nil
	}
	if err := p.apply(ctx); err != nil {
		return Result{}, err
	}
	p.res.Applied = true
	return p.res, nil
}

// compare lets all guests list their files at the same time.
func (s *guests) compare(ctx context.Context) (guestdiff.Changes, error) {
	var lists [3]*inventory
	var all errgroup.Group
	for i, g := range []*guest{s.base, s.ours, s.theirs} {
		all.Go(func() (err error) {
			lists[i], err = g.list(ctx)
			return err
		})
	}
	err := all.Wait()
	for _, l := range lists {
		if l != nil {
			defer l.close()
		}
	}
	if err != nil {
		return guestdiff.Changes{}, err
	}
	found, err := guestdiff.CompareThree(ctx, lists[0], lists[1], lists[2], MaxChanges, charge(ctx))
	switch {
	case errors.Is(err, guestdiff.ErrTooMany):
		err = sandbox.Errorf(sandbox.ErrConflict, "", "more than %d paths differ: that is too much to merge", MaxChanges)
	case errors.Is(err, guestdiff.ErrNoRoom):
		err = sandbox.Errorf(sandbox.ErrBusy, "",
			"the differences need more of the daemon's memory than a request can have now")
	case errors.Is(err, guestdiff.ErrGuest):
		err = sandbox.Errorf(sandbox.ErrGuestGone, "", "%w", err)
	}
	return found, err
}
