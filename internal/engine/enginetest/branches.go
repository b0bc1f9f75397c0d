package enginetest

import (
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
)

func branch(s suite) {
	of, sb := s.info(base), s.fork(base, 1)[0].ID
	for _, mode := range []sandbox.BranchMode{"", sandbox.BranchLive, sandbox.BranchDiff} {
		tag := "mode-" + string(mode)
		if mode == "" {
			tag = "mode"
		}
		r := s.branch(sandbox.BranchRequest{SandboxID: sb, Tag: tag, Mode: mode})
		i := r.Snapshot
		if r.Tag != tag || i.Tag != tag || i.Status != sandbox.SnapshotReady || i.BranchedFrom != sb || i.ContentHash == "" ||
			r.Fork != nil {
			s.t.Errorf("%s: %+v", tag, r)
		}
		if i.ParentTag != base || i.ParentContentHash != of.ContentHash || !slices.Equal(i.Ancestors, []string{base}) {
			s.t.Errorf("%s comes from %q, its parent is %s %s", tag, i.Ancestors, i.ParentTag, i.ParentContentHash)
		}
		rec, err := s.Engine.Receipt(receipt.OfSnapshot, tag)
		if err != nil || rec.Op != receipt.Branch || rec.Snapshot != tag {
			s.t.Errorf("receipt of %s: %+v, %v", tag, rec, err)
		}
	}
	r := s.branch(sandbox.BranchRequest{SandboxID: sb, Tag: "mode-full", Mode: sandbox.BranchFull})
	if r.Snapshot.ParentTag != "" || len(r.Snapshot.Ancestors) != 0 {
		s.t.Errorf("a full branch depends on %q, %q", r.Snapshot.ParentTag, r.Snapshot.Ancestors)
	}
	r = s.branch(sandbox.BranchRequest{SandboxID: sb})
	if !strings.HasPrefix(r.Tag, "branch-"+sb+"-") {
		s.t.Errorf("a branch without a tag is called %s", r.Tag)
	}
	want := []string{r.Tag, "mode", "mode-diff", "mode-live"}
	if got := s.info(base).Dependents; !slices.Equal(got, want) {
		s.t.Errorf("dependents are %q, want %q", got, want)
	}
	if info, err := s.Engine.Get(sb); err != nil || info.Status != sandbox.StatusRunning {
		s.t.Errorf("the sandbox is %+v, %v", info, err)
	}
}

func branchWithChildren(s suite) {
	sb := s.fork(base, 1)[0].ID
	r := s.branch(sandbox.BranchRequest{SandboxID: sb, Tag: "b", N: 2, Life: sandbox.Life{TTL: time.Hour}})
	if r.Fork == nil || len(r.Fork.Children) != 2 {
		s.t.Fatalf("got %+v", r)
	}
	for _, c := range r.Fork.Children {
		if c.Err != nil || c.Info.SnapshotTag != "b" || c.Info.SnapshotHash != r.Snapshot.ContentHash ||
			c.Info.Life.TTL != time.Hour {
			s.t.Errorf("got %+v", c)
		}
	}
	if len(r.Snapshot.Sandboxes) != 2 {
		s.t.Errorf("the snapshot is used by %q", r.Snapshot.Sandboxes)
	}
}

// A fork waits for a branch made with NoWait.
func branchWithoutWaiting(s suite) {
	sb := s.fork(base, 1)[0].ID
	s.branch(sandbox.BranchRequest{SandboxID: sb, Tag: "b", NoWait: true})
	s.wantTags("b", base)
	forked := make(chan error, 1)
	go func() {
		r, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: "b", N: 1})
		if err == nil {
			err = r.Children[0].Err
		}
		forked <- err
	}()
	if s.Finish != nil {
		s.Finish("b")
	}
	s.must(<-forked)
	if i := s.info("b"); i.Status != sandbox.SnapshotReady || i.ParentTag != base {
		s.t.Errorf("got %+v", i)
	}
}

func noBranch(s suite) {
	sb := s.fork(base, 1)[0].ID
	for what, c := range map[string]struct {
		req  sandbox.BranchRequest
		kind error
	}{
		"an unknown mode":          {sandbox.BranchRequest{Tag: "b", Mode: "fast"}, sandbox.ErrInvalid},
		"a tag that is none":       {sandbox.BranchRequest{Tag: "no/tag"}, sandbox.ErrInvalid},
		"less than no children":    {sandbox.BranchRequest{Tag: "b", N: -1}, sandbox.ErrInvalid},
		"too many children":        {sandbox.BranchRequest{Tag: "b", N: sandbox.MaxFork + 1}, sandbox.ErrInvalid},
		"children without waiting": {sandbox.BranchRequest{Tag: "b", N: 1, NoWait: true}, sandbox.ErrInvalid},
		"children without a life":  {sandbox.BranchRequest{Tag: "b", N: 1, Life: sandbox.Life{TTL: -1}}, sandbox.ErrInvalid},
		"a pause below zero":       {sandbox.BranchRequest{Tag: "b", MaxPause: -1}, sandbox.ErrInvalid},
		"a bad variable":           {sandbox.BranchRequest{Tag: "b", N: 1, Env: map[string]string{"A=B": ""}}, sandbox.ErrInvalid},
		"a pause that cannot be":   {sandbox.BranchRequest{Tag: "b", MaxPause: time.Nanosecond}, sandbox.ErrConflict},
		"a tag that is taken":      {sandbox.BranchRequest{Tag: base}, sandbox.ErrConflict},
		"all of it in no time": {sandbox.BranchRequest{Tag: "b", Mode: sandbox.BranchDiff, MaxPause: time.Nanosecond},
			sandbox.ErrConflict},
		"a bad request of a branch": {sandbox.BranchRequest{Tag: base, Mode: "fast"}, sandbox.ErrInvalid},
	} {
		c.req.SandboxID = sb
		_, err := s.Engine.Branch(s.t.Context(), c.req)
		s.want(c.kind, err, what)
	}
	s.wantTags(base)
	if info, err := s.Engine.Get(sb); err != nil || info.Status != sandbox.StatusRunning {
		s.t.Errorf("the sandbox is %+v, %v", info, err)
	}
}

func rollback(s suite) {
	sb := s.fork(base, 1)[0]
	own := s.branch(sandbox.BranchRequest{SandboxID: sb.ID, Tag: "own"}).Snapshot
	for _, to := range []sandbox.SnapshotInfo{own, s.info(base)} {
		info, err := s.Engine.Rollback(s.t.Context(), sb.ID, to.Tag)
		s.must(err)
		if info.ID != sb.ID || info.RolledBackTo != to.Tag || info.RolledBackHash != to.ContentHash ||
			info.SnapshotTag != base ||
			info.Status != sandbox.StatusRunning || info.PID == sb.PID || info.Hostname != sb.Hostname {
			s.t.Errorf("to %s: %+v", to.Tag, info)
		}
		if users := s.info(to.Tag).Sandboxes; !slices.Equal(users, []string{sb.ID}) {
			s.t.Errorf("%s is used by %q", to.Tag, users)
		}
		r, err := s.Engine.Receipt(receipt.OfSandbox, sb.ID)
		if err != nil || r.Op != receipt.Rollback {
			s.t.Errorf("the last receipt is %+v, %v", r, err)
		}
	}
	if n := len(s.Engine.List()); n != 1 {
		s.t.Errorf("%d sandboxes are listed", n)
	}
}

func noRollback(s suite) {
	s.create("strange")
	sb, other := s.fork(base, 1)[0].ID, s.fork(base, 1)[0].ID
	s.branch(sandbox.BranchRequest{SandboxID: other, Tag: "others"})
	for what, c := range map[string]struct {
		tag  string
		kind error
	}{
		"to a snapshot that is not there":      {"none", sandbox.ErrNotFound},
		"to a tag that is none":                {"no/tag", sandbox.ErrInvalid},
		"to one that it did not come from":     {"strange", sandbox.ErrConflict},
		"to one branched from another sandbox": {"others", sandbox.ErrConflict},
	} {
		_, err := s.Engine.Rollback(s.t.Context(), sb, c.tag)
		s.want(c.kind, err, what)
		if what != "to a tag that is none" && (err == nil || !strings.Contains(err.Error(), base)) {
			s.t.Errorf("%s: the error does not name what would do: %v", what, err)
		}
	}
	if info, err := s.Engine.Get(sb); err != nil || info.RolledBackTo != "" || info.Status != sandbox.StatusRunning {
		s.t.Errorf("the sandbox is %+v, %v", info, err)
	}
}
