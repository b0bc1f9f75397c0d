package enginetest

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
)

func fork(s suite) {
	of := s.info(base)
	sbs := append(s.fork(base, 2), s.fork(base, 1)...)
	var ids []string
	for _, b := range sbs {
		if b.Status != sandbox.StatusRunning || b.SnapshotTag != base || b.SnapshotHash != of.ContentHash ||
			b.Hostname != b.ID || b.PID == 0 || b.RolledBackTo != "" {
			s.t.Errorf("got %+v", b)
		}
		if got, err := s.Engine.Get(b.ID); err != nil || got.ID != b.ID || got.PID != b.PID {
			s.t.Errorf("%s is %+v, %v", b.ID, got, err)
		}
		r, err := s.Engine.Receipt(receipt.OfSandbox, b.ID)
		if err != nil || r.Op != receipt.Fork || r.Sandbox != b.ID {
			s.t.Errorf("receipt of %s: %+v, %v", b.ID, r, err)
		}
		ids = append(ids, b.ID)
	}
	var listed []string
	for _, b := range s.Engine.List() {
		listed = append(listed, b.ID)
	}
	slices.Sort(ids)
	slices.Sort(listed)
	if users := s.info(base).Sandboxes; !slices.Equal(users, ids) || !slices.Equal(listed, ids) ||
		len(slices.Compact(ids)) != 3 {
		s.t.Errorf("forked %q, the snapshot has %q, listed are %q", ids, users, listed)
	}
	s.must(s.Engine.Kill(s.t.Context(), sbs[0].ID))
	_, err := s.Engine.Get(sbs[0].ID)
	s.want(sandbox.ErrNotFound, err, "a sandbox that was killed")
	s.want(sandbox.ErrNotFound, s.Engine.Kill(s.t.Context(), sbs[0].ID), "a second kill")
	if left := s.Engine.List(); len(left) != 2 {
		s.t.Errorf("%d sandboxes are listed, want 2", len(left))
	}
}

func noFork(s suite) {
	for _, n := range []int{-1, 0, sandbox.MaxFork + 1} {
		_, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: base, N: n})
		s.want(sandbox.ErrInvalid, err, "a number of children that cannot be")
	}
	for name, value := range map[string]string{"": "x", "A=B": "x", "A\nB": "x", "A": "x\x00"} {
		_, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: base, N: 1, Env: map[string]string{name: value}})
		s.want(sandbox.ErrInvalid, err, "a variable that no program can have")
	}
	if n := len(s.Engine.List()); n != 0 {
		s.t.Errorf("%d sandboxes are listed", n)
	}
}

// calls returns all calls to a running sandbox.
func calls(s suite) map[string]func(id string) error {
	e, ctx := s.Engine, s.t.Context()
	return map[string]func(id string) error{
		"ping": func(id string) error { _, err := e.Ping(ctx, id); return err },
		"exec": func(id string) error {
			_, err := e.Exec(ctx, id, sandbox.ExecRequest{Args: []string{"echo"}})
			return err
		},
		"eval":   func(id string) error { _, err := e.Eval(ctx, id, sandbox.EvalRequest{Code: "1"}); return err },
		"memory": func(id string) error { _, err := e.Memory(id); return err },
		"branch": func(id string) error {
			_, err := e.Branch(ctx, sandbox.BranchRequest{SandboxID: id, Tag: "x"})
			return err
		},
		"port":     func(id string) error { _, err := e.DialPort(ctx, id, 1); return err },
		"rollback": func(id string) error { _, err := e.Rollback(ctx, id, base); return err },
	}
}

func noSandbox(s suite) {
	for what, call := range calls(s) {
		s.want(sandbox.ErrNotFound, call("sb-none"), what+" of no sandbox")
	}
	_, err := s.Engine.Get("sb-none")
	s.want(sandbox.ErrNotFound, err, "info of no sandbox")
	s.want(sandbox.ErrNotFound, s.Engine.Kill(s.t.Context(), "sb-none"), "kill of no sandbox")
	_, err = s.Engine.Receipt(receipt.OfSandbox, "sb-none")
	s.want(sandbox.ErrNotFound, err, "receipt of no sandbox")
	s.wantTags(base)
}

func ended(s suite) {
	sb := s.fork(base, 1)[0].ID
	s.End(sb)
	s.eventually("failed sandbox", func() bool {
		info, err := s.Engine.Get(sb)
		s.must(err)
		return info.Status == sandbox.StatusFailed
	})
	info, err := s.Engine.Get(sb)
	if err != nil || info.Reason == "" || info.PID != 0 {
		s.t.Errorf("got %+v, %v", info, err)
	}
	for what, call := range calls(s) {
		s.want(sandbox.ErrGuestGone, call(sb), what+" of a sandbox that has failed")
	}
	if users := s.info(base).Sandboxes; len(users) != 0 {
		s.t.Errorf("the snapshot is used by %q", users)
	}
	if listed := s.Engine.List(); len(listed) != 1 || listed[0].Status != sandbox.StatusFailed {
		s.t.Errorf("listed: %+v", listed)
	}
	s.must(s.Engine.Kill(s.t.Context(), sb))
	s.wantTags(base)
}

func programs(s suite) {
	sb := s.fork(base, 1)[0].ID
	r, err := s.Engine.Exec(s.t.Context(), sb, sandbox.ExecRequest{Args: []string{"echo", "one", "two"}})
	if err != nil || r.ExitCode != 0 || string(bytes.TrimSpace(r.Stdout)) != "one two" {
		s.t.Errorf("got %+v, %v", r, err)
	}
	_, err = s.Engine.Exec(s.t.Context(), sb, sandbox.ExecRequest{})
	s.want(sandbox.ErrInvalid, err, "no program")
	_, err = s.Engine.Exec(s.t.Context(), sb, sandbox.ExecRequest{Args: []string{"no-such-program"}})
	s.want(sandbox.ErrInvalid, err, "a program that is not there")
	if pong, err := s.Engine.Ping(s.t.Context(), sb); err != nil || pong.PID != 1 {
		s.t.Errorf("got %+v, %v", pong, err)
	}
}

func pools(s suite) {
	s.create("a")
	for _, size := range []int{-1, sandbox.MaxPool + 1} {
		s.want(sandbox.ErrInvalid, s.Engine.SetPool(s.t.Context(), "a", size), "a size that cannot be")
	}
	s.must(s.Engine.SetPool(s.t.Context(), base, 1))
	s.must(s.Engine.SetPool(s.t.Context(), "a", 2))
	s.eventually("full pools", func() bool {
		all := s.Engine.Pools()
		return len(all) == 2 && all[0].Ready == 2 && all[1].Ready == 1
	})
	if all := s.Engine.Pools(); all[0].Tag != "a" || all[0].Wanted != 2 || all[1].Tag != base || all[1].Wanted != 1 {
		s.t.Errorf("got %+v", all)
	}
	r, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})
	if err != nil || r.PoolReady == 0 {
		s.t.Errorf("forked with a full pool: %+v, %v", r, err)
	}
	s.must(s.Engine.Kill(s.t.Context(), r.Children[0].Info.ID))
	s.must(s.Engine.DeleteSnapshot(s.t.Context(), "a", sandbox.DeleteOptions{}))
	s.must(s.Engine.SetPool(s.t.Context(), base, 0))
	if all := s.Engine.Pools(); len(all) != 1 || all[0].Tag != base || all[0].Wanted != 0 {
		s.t.Errorf("after the deletion: %+v", all)
	}
}

func contexts(s suite) {
	ctx, cancel := context.WithCancelCause(s.t.Context())
	why := errors.New("the caller has left")
	cancel(why)
	_, err := s.Engine.Fork(ctx, sandbox.ForkRequest{Tag: base, N: 2})
	s.want(why, err, "fork")
	if n := len(s.Engine.List()); n != 0 {
		s.t.Errorf("%d sandboxes are left of a fork that nobody waits for", n)
	}
	_, err = s.Engine.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "late", Image: s.Image}, nil)
	s.want(why, err, "creation")
	sb := s.fork(base, 1)[0].ID
	_, err = s.Engine.Branch(ctx, sandbox.BranchRequest{SandboxID: sb, Tag: "late"})
	s.want(why, err, "branch")
	s.wantTags(base)
	s.create("late") // the tag is free
}

func copies(s suite) {
	s.fork(base, 2)
	list := s.Engine.List()
	list[0].Hostname = "changed"
	for _, b := range s.Engine.List() {
		if b.Hostname != b.ID {
			s.t.Errorf("%s is called %s", b.ID, b.Hostname)
		}
	}
	info := s.info(base)
	info.Sandboxes[0] = "changed"
	if slices.Contains(s.info(base).Sandboxes, "changed") {
		s.t.Error("a change of an answer has changed the snapshot")
	}
}
