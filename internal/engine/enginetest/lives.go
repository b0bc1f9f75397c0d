package enginetest

import (
	"errors"
	"reflect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
)

// pauses checks a paused sandbox, with and without its memory, and its resume.
func pauses(s suite) {
	sb := s.fork(base, 1)[0]
	for _, cold := range []bool{false, true, true, false} {
		paused, err := s.Engine.Pause(s.t.Context(), sb.ID, sandbox.PauseOptions{FilesystemOnly: cold})
		s.must(err)
		if paused.Status != sandbox.StatusPaused || paused.PID != 0 || paused.Cold != cold || paused.ID != sb.ID ||
			!cold && paused.PausedIn == "" {
			s.t.Errorf("paused, cold %t: %+v", cold, paused)
		}
		if got, err := s.Engine.Get(sb.ID); err != nil || !reflect.DeepEqual(got, paused) {
			s.t.Errorf("it is listed as %+v, %v", got, err)
		}
		_, err = s.Engine.Pause(s.t.Context(), sb.ID, sandbox.PauseOptions{FilesystemOnly: cold})
		s.wantPaused(err, "a pause")
		_, err = s.Engine.Exec(s.t.Context(), sb.ID, sandbox.ExecRequest{Args: []string{"true"}})
		s.wantPaused(err, "a program")
		_, err = s.Engine.Branch(s.t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"})
		s.wantPaused(err, "a branch")
		_, err = s.Engine.Rollback(s.t.Context(), sb.ID, base)
		s.wantPaused(err, "a rollback")
		s.lives(sb, paused, cold)
	}
	s.branch(sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"})
	s.must(s.Engine.Kill(s.t.Context(), sb.ID))
}

// lives resumes a paused sandbox.
func (s suite) lives(sb, paused sandbox.Info, cold bool) {
	s.t.Helper()
	info, err := s.Engine.Resume(s.t.Context(), sb.ID)
	s.must(err)
	if info.Status != sandbox.StatusRunning || info.PID == 0 || info.Cold != cold || info.Hostname != sb.Hostname ||
		info.PausedIn != paused.PausedIn {
		s.t.Errorf("resumed, cold %t: %+v", cold, info)
	}
	if _, err := s.Engine.Ping(s.t.Context(), sb.ID); err != nil {
		s.t.Error(err)
	}
	again, err := s.Engine.Resume(s.t.Context(), sb.ID)
	if err != nil || again.PID != info.PID {
		s.t.Errorf("resume of one that runs: %+v, %v", again, err)
	}
	s.eventually("receipt of the resume", func() bool {
		r, err := s.Engine.Receipt(receipt.OfSandbox, sb.ID)
		return err == nil && r.Op == receipt.Resume && r.Cold == cold
	})
}

// wantPaused checks the refusal of a request to a paused sandbox.
func (s suite) wantPaused(err error, what string) {
	s.t.Helper()
	s.want(sandbox.ErrConflict, err, what+" of a paused one")
	if told := (*sandbox.Error)(nil); errors.As(err, &told) && told.Reason() != sandbox.ReasonSandboxPaused {
		s.t.Errorf("%s of a paused one: reason %s", what, told.Reason())
	}
}

// noPause checks refused pauses and resumes.
func noPause(s suite) {
	for _, cold := range []bool{false, true} {
		_, err := s.Engine.Pause(s.t.Context(), "sb-none", sandbox.PauseOptions{FilesystemOnly: cold})
		s.want(sandbox.ErrNotFound, err, "a pause of none")
	}
	_, err := s.Engine.Resume(s.t.Context(), "sb-none")
	s.want(sandbox.ErrNotFound, err, "a resume of none")
	sb := s.fork(base, 1)[0]
	s.End(sb.ID)
	s.eventually("failed sandbox", func() bool {
		i, err := s.Engine.Get(sb.ID)
		return err == nil && i.Status == sandbox.StatusFailed
	})
	for _, cold := range []bool{false, true} {
		_, err = s.Engine.Pause(s.t.Context(), sb.ID, sandbox.PauseOptions{FilesystemOnly: cold})
		s.want(sandbox.ErrGuestGone, err, "a pause of a failed one")
	}
	_, err = s.Engine.Resume(s.t.Context(), sb.ID)
	s.want(sandbox.ErrGuestGone, err, "a resume of a failed one")
}
