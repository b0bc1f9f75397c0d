package keep

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

const (
	// MaxSandboxes is the largest number of sandboxes in one comparison.
	MaxSandboxes = sandbox.MaxFork
	// DefaultTimeout is the limit for one score if the request has none.
	DefaultTimeout = sandbox.DefaultExecTimeout
	// atOnce is the number of sandboxes that are scored or ended concurrently. Each score runs a
	// program in a guest, so more would compete for the host's CPUs.
	atOnce = 8
	// endTime bounds the end of all losers. It begins when the decision is made, and the caller's
	// disconnection does not end it.
	endTime = 2 * time.Minute
)

// Engine is the engine as visible to the caller.
type Engine interface {
	List() []sandbox.Info
	Get(id string) (sandbox.Info, error)
	Kill(ctx context.Context, id string) error
	Exec(ctx context.Context, id string, req sandbox.ExecRequest) (sandbox.ExecResult, error)
	sandbox.AgentDialer
	SnapshotBrief(tag string) (sandbox.SnapshotBrief, error)
	ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error)
}

// Request asks to keep the best of some sandboxes.
type Request struct {
	// IDs are the sandboxes. Of replaces them by the children of a snapshot or of a sandbox.
	IDs []string
	Of  string
	// Best is the number of scored sandboxes to keep, at least 1.
	Best int
	// Args is the program that prints the score. File replaces it by the path of a file in the guest.
	Args []string
	File string
	// Lowest keeps the lowest scores.
	Lowest bool
	// Timeout limits each score; 0 means DefaultTimeout.
	Timeout time.Duration
	// EndUnscored ends sandboxes without a score too.
	EndUnscored bool
	// DryRun ends no sandbox.
	DryRun bool
}

// Outcome is the fate of a sandbox.
type Outcome string

const (
	Kept  Outcome = "kept"
	Ended Outcome = "ended"
	// Gone means that the sandbox was ended by another request meanwhile.
	Gone Outcome = "gone"
)

// Entry is the result for one sandbox.
type Entry struct {
	ID    string
	Score float64 // 0 if it has none
	// Problem says why it has no score, or why it could not be ended. It is empty otherwise.
	Problem string
	Scored  bool
	Outcome Outcome // of a dry run: what would happen
}

// Run scores all sandboxes of a request, then ends all but the best. The entries are in order of
// their rank: the best first, equal scores in the request's order, those without a score last. If no
// sandbox has a score, none is ended. If ctx ends before all are scored, none is ended either.
func Run(ctx context.Context, e Engine, req Request) ([]Entry, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	ids, err := req.sandboxes(ctx, e)
	if err != nil {
		return nil, err
	}
	all := make([]Entry, len(ids))
	eachAtOnce(all, func(i int) { all[i] = score(ctx, e, ids[i], req) })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	rank(all, req.Lowest)
	decide(all, req)
	if !req.DryRun {
		end(ctx, e, all)
	}
	return all, nil
}

func (r *Request) check() error {
	invalid := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.ErrInvalid, "", format, args...)
	}
	switch {
	case r.Best < 1:
		return invalid("best is %d, want at least 1", r.Best)
	case (len(r.IDs) > 0) == (r.Of != ""):
		return invalid("want either ids or of: the sandboxes, or the snapshot or sandbox that they come from")
	case (len(r.Args) > 0) == (r.File != ""):
		return invalid("want either args or file: the program that prints the score, or the file that has it")
	case len(r.Args) > 0 && r.Args[0] == "":
		return invalid("args: want the program and its arguments, got no program")
	case len(r.IDs) > MaxSandboxes:
		return invalid("%d sandboxes are too many, want at most %d", len(r.IDs), MaxSandboxes)
	}
	if r.Timeout <= 0 {
		r.Timeout = DefaultTimeout
	}
	return nil
}

// rank sorts by score. It keeps the order of equal scores, and of sandboxes without one.
func rank(all []Entry, lowest bool) {
	slices.SortStableFunc(all, func(a, b Entry) int {
		switch {
		case a.Scored != b.Scored && a.Scored:
			return -1
		case a.Scored != b.Scored:
			return 1
		case lowest:
			return cmp.Compare(a.Score, b.Score)
		}
		return cmp.Compare(b.Score, a.Score)
	})
}

// decide sets the outcome of ranked sandboxes.
func decide(all []Entry, req Request) {
	scored := 0
	for _, s := range all {
		if s.Scored {
			scored++
		}
	}
	for i := range all {
		s := &all[i]
		switch {
		case s.Outcome == Gone:
		case s.Scored && i >= req.Best, !s.Scored && req.EndUnscored && scored > 0:
			s.Outcome = Ended
		default:
			s.Outcome = Kept
		}
	}
}

// end ends the losers. The decision is made, so a caller that disconnects does not leave it half
// done.
func end(ctx context.Context, e Engine, all []Entry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	eachAtOnce(all, func(i int) {
		s := &all[i]
		if s.Outcome != Ended {
			return
		}
		switch err := e.Kill(ctx, s.ID); {
		case errors.Is(err, sandbox.ErrNotFound):
			s.Outcome = Gone
		case err != nil:
			s.Outcome, s.Problem = Kept, sandbox.Clip("it could not be ended: "+err.Error())
		}
	})
}

// eachAtOnce calls f for each index, several at a time, and waits.
func eachAtOnce(all []Entry, f func(i int)) {
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range all {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			f(i)
		})
	}
	wg.Wait()
}
