package op_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

func TestASnapshotOnTopOfAnother(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	var steps []string
	var said string
	s, err := e.DeriveSnapshot(t.Context(), sandbox.DeriveRequest{Tag: "b", From: "a", Exec: []string{"echo", "hello", "you"}, Warm: "x = 1"}, func(st sandbox.Step) {
		if said += string(st.Output); st.Done {
			steps = append(steps, st.Name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Tag != "b" || s.Status != sandbox.SnapshotReady || s.ParentTag != "a" || !slices.Equal(s.Ancestors, []string{"a"}) {
		t.Errorf("%+v", s)
	}
	if want := []string{"fork", "exec", "warm", "quiesce", "capture"}; !slices.Equal(steps, want) || said != "hello you" {
		t.Errorf("steps %q, output %q", steps, said)
	}
	if left := e.List(); len(left) != 0 {
		t.Errorf("the child is left: %+v", left)
	}
	h.Fork(e, "b", 2)
	h.KillAll()
}

// A derivation that fails or is cancelled at any step leaves no files.
func TestADerivationThatFails(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	before := h.Stored()
	echo := []string{"echo", "x"}
	for _, c := range []struct {
		name, fault string
		req         sandbox.DeriveRequest
		kind        error
		says        string
	}{
		{name: "nothing to do", req: sandbox.DeriveRequest{}, kind: sandbox.ErrInvalid, says: "nothing to do"},
		{name: "no such parent", req: sandbox.DeriveRequest{From: "none", Exec: echo}, kind: sandbox.ErrNotFound, says: "none"},
		{name: "the tag is taken", req: sandbox.DeriveRequest{Tag: "a", Exec: echo}, kind: sandbox.ErrConflict, says: "a"},
		{name: "the tag is no tag", req: sandbox.DeriveRequest{Tag: "../b", Exec: echo}, kind: sandbox.ErrInvalid, says: "../b"},
		{name: "no such program", req: sandbox.DeriveRequest{Exec: []string{"nothing"}}, kind: sandbox.ErrInvalid, says: "no such program"},
		{name: "a program that dies", req: sandbox.DeriveRequest{Exec: []string{"segv"}}, kind: sandbox.ErrInvalid, says: "segmentation fault"},
		{name: "a program that does not end", req: sandbox.DeriveRequest{Exec: []string{"hang"}, ExecTimeout: 50 * time.Millisecond}, kind: sandbox.ErrTimeout, says: "hang timed out after 50ms"},
		{name: "warm-up that raises", req: sandbox.DeriveRequest{Warm: "raise"}, kind: sandbox.ErrInvalid, says: "ValueError"},
		{name: "a child that cannot be made", fault: "restore-fail", req: sandbox.DeriveRequest{Exec: echo}, kind: storeerr.ErrNotRestorable, says: "KVM said no"},
		{name: "a guest that is not quiet", fault: "quiesce-fail", req: sandbox.DeriveRequest{Exec: echo}, kind: enginefake.ErrAny, says: "the disk hums"},
		{name: "a capture that fails", fault: "capture-fail", req: sandbox.DeriveRequest{Exec: echo}, kind: enginefake.ErrAny, says: "KVM said no"},
		{name: "a capture that is not written", fault: "captured-fail", req: sandbox.DeriveRequest{Exec: echo}, kind: sandbox.ErrNoSpace, says: "no space left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.fault != "" {
				h.Fault(c.fault, 1)
			}
			if c.req.Tag == "" {
				c.req.Tag = "b"
			}
			if c.req.From == "" {
				c.req.From = "a"
			}
			_, err := e.DeriveSnapshot(t.Context(), c.req, nil)
			enginefake.WantError(t, err, c.kind, c.says)
			if after := h.Stored(); after != before || len(e.List()) != 0 {
				t.Errorf("left behind: %q, before %q; sandboxes %+v", after, before, e.List())
			}
		})
	}
}

func TestADerivationIsCancelled(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	before := h.Stored()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := e.DeriveSnapshot(ctx, sandbox.DeriveRequest{Tag: "b", From: "a", Exec: []string{"hang"}}, func(s sandbox.Step) {
		if s.Name == sandbox.StepExec {
			time.AfterFunc(50*time.Millisecond, cancel)
		}
	})
	enginefake.WantError(t, err, context.Canceled)
	if after := h.Stored(); after != before || len(e.List()) != 0 {
		t.Errorf("left behind: %q, before %q; sandboxes %+v", after, before, e.List())
	}
}
