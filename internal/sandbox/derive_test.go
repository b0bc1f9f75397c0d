package sandbox

import (
	"context"
	"slices"
	"testing"
	"time"
)

func TestASnapshotOnTopOfAnother(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	var steps []string
	var said string
	s, err := e.DeriveSnapshot(t.Context(), DeriveRequest{Tag: "b", From: "a", Exec: []string{"echo", "hello", "you"}, Warm: "x = 1"}, func(st Step) {
		if said += string(st.Output); st.Done {
			steps = append(steps, st.Name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Tag != "b" || s.Status != SnapshotReady || s.ParentTag != "a" || !slices.Equal(s.Ancestors, []string{"a"}) {
		t.Errorf("%+v", s)
	}
	if want := []string{"fork", "exec", "warm", "quiesce", "capture"}; !slices.Equal(steps, want) || said != "hello you" {
		t.Errorf("steps %q, output %q", steps, said)
	}
	if left := e.List(); len(left) != 0 {
		t.Errorf("the child is left: %+v", left)
	}
	h.fork(e, "b", 2)
	h.killAll()
}

// Nothing of a derivation that failed or was cancelled remains, at whatever step.
func TestADerivationThatFails(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	before := h.stored()
	echo := []string{"echo", "x"}
	for _, c := range []struct {
		name, spoil string
		req         DeriveRequest
		kind        error
		says        string
	}{
		{name: "nothing to do", req: DeriveRequest{}, kind: ErrInvalid, says: "nothing to do"},
		{name: "no such parent", req: DeriveRequest{From: "none", Exec: echo}, kind: ErrNotFound, says: "none"},
		{name: "the tag is taken", req: DeriveRequest{Tag: "a", Exec: echo}, kind: ErrConflict, says: "a"},
		{name: "the tag is no tag", req: DeriveRequest{Tag: "../b", Exec: echo}, kind: ErrInvalid, says: "../b"},
		{name: "no such program", req: DeriveRequest{Exec: []string{"nothing"}}, kind: ErrInvalid, says: "no such program"},
		{name: "a program that dies", req: DeriveRequest{Exec: []string{"segv"}}, kind: ErrInvalid, says: "segmentation fault"},
		{name: "a program that does not end", req: DeriveRequest{Exec: []string{"hang"}, ExecTimeout: 50 * time.Millisecond}, kind: ErrTimeout, says: "hang did not end within 50ms"},
		{name: "warm-up that raises", req: DeriveRequest{Warm: "raise"}, kind: ErrInvalid, says: "ValueError"},
		{name: "a child that cannot be made", spoil: "restore-fail", req: DeriveRequest{Exec: echo}, kind: ErrNotRestorable, says: "KVM said no"},
		{name: "a guest that is not quiet", spoil: "quiesce-fail", req: DeriveRequest{Exec: echo}, kind: errAny, says: "the disk hums"},
		{name: "a capture that fails", spoil: "capture-fail", req: DeriveRequest{Exec: echo}, kind: errAny, says: "KVM said no"},
		{name: "a capture that is not written", spoil: "captured-fail", req: DeriveRequest{Exec: echo}, kind: ErrNoSpace, says: "no space left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.spoil != "" {
				h.spoil(c.spoil, 1)
			}
			if c.req.Tag == "" {
				c.req.Tag = "b"
			}
			if c.req.From == "" {
				c.req.From = "a"
			}
			_, err := e.DeriveSnapshot(t.Context(), c.req, nil)
			wantError(t, err, c.kind, c.says)
			if after := h.stored(); after != before || len(e.List()) != 0 {
				t.Errorf("left behind: %q, before %q; sandboxes %+v", after, before, e.List())
			}
		})
	}
}

func TestADerivationIsCancelled(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	before := h.stored()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := e.DeriveSnapshot(ctx, DeriveRequest{Tag: "b", From: "a", Exec: []string{"hang"}}, func(s Step) {
		if s.Name == StepExec {
			time.AfterFunc(50*time.Millisecond, cancel)
		}
	})
	wantError(t, err, context.Canceled)
	if after := h.stored(); after != before || len(e.List()) != 0 {
		t.Errorf("left behind: %q, before %q; sandboxes %+v", after, before, e.List())
	}
}

func TestTheEndOfAnOutput(t *testing.T) {
	var said tail
	for range 3000 {
		said.add([]byte("line\n"))
	}
	said.add([]byte("\x1b[31mlast"))
	if got := said.text(); len(got) > 200 || got[len(got)-8:] != "[31mlast" {
		t.Errorf("%q", got)
	}
}
