package enginetest

import (
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// promotes checks that a child takes its parent's place, running or paused.
func promotes(s suite) {
	for _, pause := range []bool{false, true} {
		above := s.fork(base, 1)[0]
		mid := s.branch(sandbox.BranchRequest{SandboxID: above.ID, Tag: "mid", N: 2})
		child, other := mid.Fork.Children[0].Info, mid.Fork.Children[1].Info
		req := sandbox.PromoteRequest{Child: child.ID, Discard: pause}
		if pause {
			_, err := s.Engine.Pause(s.t.Context(), child.ID, sandbox.PauseOptions{})
			s.must(err)
		} else {
			req.Tag, req.Place = "old", above.ID
		}
		got, err := s.Engine.Promote(s.t.Context(), req)
		s.must(err)
		i := got.Info
		if i.ID != above.ID || i.Hostname != above.Hostname || i.PID == above.PID || i.PromotedFrom != child.ID ||
			i.Status != sandbox.StatusRunning || i.SnapshotTag != base || got.Was != child.ID || got.KeptIn != req.Tag {
			s.t.Errorf("promoted: %+v", got)
		}
		_, err = s.Engine.Get(child.ID)
		s.want(sandbox.ErrNotFound, err, "the child's own id")
		if _, err := s.Engine.Ping(s.t.Context(), above.ID); err != nil {
			s.t.Error(err)
		}
		if n := len(s.Engine.List()); n != 2 {
			s.t.Errorf("%d sandboxes are listed", n)
		}
		if !pause {
			back, err := s.Engine.Rollback(s.t.Context(), above.ID, "old")
			s.must(err)
			if back.PromotedFrom != "" || back.RolledBackTo != "old" {
				s.t.Errorf("rolled back: %+v", back)
			}
		}
		s.must(s.Engine.Kill(s.t.Context(), above.ID))
		_, err = s.Engine.Promote(s.t.Context(), sandbox.PromoteRequest{Child: other.ID})
		s.want(sandbox.ErrConflict, err, "the place of one that has ended")
		s.clean()
	}
}

// noPromotion checks refused promotions. They change nothing.
func noPromotion(s suite) {
	lone, above := s.fork(base, 1)[0], s.fork(base, 1)[0]
	child := s.branch(sandbox.BranchRequest{SandboxID: above.ID, Tag: "mid", N: 1}).Fork.Children[0].Info
	for what, c := range map[string]struct {
		req  sandbox.PromoteRequest
		kind error
	}{
		"one that is not there":      {sandbox.PromoteRequest{Child: "sb-none"}, sandbox.ErrNotFound},
		"one without a parent":       {sandbox.PromoteRequest{Child: lone.ID}, sandbox.ErrConflict},
		"to the place of a stranger": {sandbox.PromoteRequest{Child: child.ID, Place: lone.ID}, sandbox.ErrConflict},
		"to its own place":           {sandbox.PromoteRequest{Child: child.ID, Place: child.ID}, sandbox.ErrConflict},
		"to no place":                {sandbox.PromoteRequest{Child: child.ID, Place: "sb-none"}, sandbox.ErrConflict},
		"a parent":                   {sandbox.PromoteRequest{Child: above.ID, Place: child.ID}, sandbox.ErrConflict},
		"with a tag that is taken":   {sandbox.PromoteRequest{Child: child.ID, Tag: base}, sandbox.ErrConflict},
	} {
		_, err := s.Engine.Promote(s.t.Context(), c.req)
		s.want(c.kind, err, what)
	}
	_, err := s.Engine.Pause(s.t.Context(), above.ID, sandbox.PauseOptions{})
	s.must(err)
	_, err = s.Engine.Promote(s.t.Context(), sandbox.PromoteRequest{Child: child.ID})
	s.wantPaused(err, "to the place")
	if i, err := s.Engine.Get(child.ID); err != nil || i.Status != sandbox.StatusRunning || i.PID != child.PID {
		s.t.Errorf("the child is now %+v, %v", i, err)
	}
	for _, tag := range s.tags() {
		if tag != base && tag != "mid" && !strings.HasPrefix(tag, "pause-") {
			s.t.Errorf("left: %s", tag)
		}
	}
}
