package op_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/updatewire"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// withAgent gives the engine a program for agents.
func withAgent(h *enginefake.Host) {
	h.T.Helper()
	h.Cfg.AgentBinary = filepath.Join(h.T.TempDir(), "forkd-agent")
	if err := os.WriteFile(h.Cfg.AgentBinary, []byte(strings.Repeat("program ", 1<<16)), 0o700); err != nil {
		h.T.Fatal(err)
	}
}

func web(tag string, n int) sandbox.ForkRequest {
	return sandbox.ForkRequest{Tag: tag, N: n, Services: []servicespec.Spec{{Name: "web", Command: []string{"true"}}}}
}

// oldSnapshot makes a snapshot of an agent that lacks services and can be replaced.
func oldSnapshot(h *enginefake.Host, e *engine.Engine, tag string) {
	h.T.Helper()
	h.Fault("agent-to-update", 1)
	h.Snapshot(e, tag)
}

func TestAForkReplacesAnOldAgent(t *testing.T) {
	h := enginefake.NewHost(t)
	withAgent(h)
	e := h.Open()
	oldSnapshot(h, e, "old")
	h.Fault("update-dropped", 1)
	r, err := e.Fork(t.Context(), web("old", 3))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Children {
		if c.Err != nil || !c.Info.AgentRenewed {
			t.Errorf("child %d: %v, replaced: %t", c.Index, c.Err, c.Info.AgentRenewed)
		}
	}
	// A branch has the new agent, and needs no update.
	b, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: r.Children[0].Info.ID, Tag: "new"})
	if err != nil {
		t.Fatal(err)
	}
	if a := h.AgentOf(b.Snapshot.Tag); !a.Can(agentproto.CanServices) {
		t.Errorf("the branch's agent is %+v", a)
	}
	// A fork that needs no more than the old agent can leaves it.
	if i := h.Fork(e, "old", 1)[0]; i.AgentRenewed {
		t.Error("an agent was replaced without need")
	}
}

// Lists show which snapshots have an old agent, and whether a fork replaces it.
func TestASnapshotShowsItsAgent(t *testing.T) {
	for name, c := range map[string]struct {
		setup                 func(*enginefake.Host)
		outdated, replaceable bool
	}{
		"of now":                       {func(h *enginefake.Host) { withAgent(h); h.Fault("agent-of-now", 1) }, false, true},
		"of before":                    {func(h *enginefake.Host) { withAgent(h); h.Fault("agent-of-before", 1) }, true, false},
		"to update":                    {func(h *enginefake.Host) { withAgent(h); h.Fault("agent-to-update", 1) }, true, true},
		"to update without a program":  {func(h *enginefake.Host) { h.Fault("agent-to-update", 1) }, true, false},
		"of now, and without programs": {func(h *enginefake.Host) { h.Fault("agent-of-now", 1) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			c.setup(h)
			e := h.Open()
			h.Snapshot(e, "py")
			s, err := e.SnapshotInfo(t.Context(), "py")
			if err != nil {
				t.Fatal(err)
			}
			if a := s.Agent; a == nil || a.Outdated != c.outdated || a.Replaceable != c.replaceable || a.Version == "" {
				t.Errorf("the agent is %+v, want outdated: %t, replaceable: %t", a, c.outdated, c.replaceable)
			}
		})
	}
}

// A sandbox shows the agent that its guest has now: after a fork that replaced it, in another daemon, paused and
// resumed, and after a rollback.
func TestASandboxShowsItsAgent(t *testing.T) {
	h := enginefake.NewHost(t)
	withAgent(h)
	e := h.Open()
	oldSnapshot(h, e, "old")
	wantAgent := func(when, id string, outdated bool) {
		t.Helper()
		switch a := enginefake.MustGet(t, e, id).Agent; {
		case a == nil || a.Version == "" || len(a.Capabilities) == 0:
			t.Errorf("%s: the agent is %+v", when, a)
		case a.Outdated != outdated || !a.Replaceable:
			t.Errorf("%s: the agent is %+v, want outdated: %t", when, a, outdated)
		}
	}
	wantAgent("fork that needs no new agent", h.Fork(e, "old", 1)[0].ID, true)
	r, err := e.Fork(t.Context(), web("old", 1))
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Children[0].Info.Agent; a == nil || a.Outdated {
		t.Errorf("the answer to the fork has the agent %+v", a)
	}
	id := r.Children[0].Info.ID
	wantAgent("replaced", id, false)
	h.Close(e)
	e = h.Open()
	wantAgent("another daemon", id, false)
	h.Pause(e, id)
	wantAgent("paused", id, false)
	h.Resume(e, id)
	wantAgent("resumed", id, false)
	if _, err := e.Rollback(t.Context(), id, "old"); err != nil {
		t.Fatal(err)
	}
	wantAgent("rolled back", id, true)
	h.Cfg.AgentBinary = "" // agents are not replaced any more
	h.Close(e)
	e = h.Open()
	if a := enginefake.MustGet(t, e, id).Agent; a == nil || !a.Outdated || a.Replaceable {
		t.Errorf("without a program the agent is %+v", a)
	}
}

// A sandbox that boots has the agent of its image.
func TestABootedSandboxShowsItsAgent(t *testing.T) {
	h := enginefake.NewHost(t)
	withAgent(h)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	pauseCold(h, e, sb.ID)
	h.Fault("agent-to-update", 1)
	h.Resume(e, sb.ID)
	if a := enginefake.MustGet(t, e, sb.ID).Agent; a == nil || !a.Outdated {
		t.Errorf("the agent is %+v", a)
	}
}

// An agent with services and without liveness would ignore the declaration.
func TestLivenessNeedsAnAgentThatHasIt(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Fault("agent-without-liveness", 1)
	h.Snapshot(e, "old")
	req := web("old", 1)
	if _, err := e.Fork(t.Context(), req); err != nil {
		t.Errorf("without liveness: %v", err)
	}
	req.Services[0].Port, req.Services[0].Liveness = 80, servicespec.Liveness{IntervalMS: 1000}
	_, err := e.Fork(t.Context(), req)
	var told *sandbox.Error
	if !errors.As(err, &told) || told.Reason() != sandbox.ReasonAgentOld || !strings.Contains(err.Error(), "liveness") {
		t.Errorf("got %v", err)
	}
	req.Services[0].Liveness, req.Services[0].StopSignal = servicespec.Liveness{}, "SIGQUIT"
	_, err = e.Fork(t.Context(), req)
	if !errors.As(err, &told) || told.Reason() != sandbox.ReasonAgentOld || !strings.Contains(err.Error(), "stop signals") {
		t.Errorf("got %v", err)
	}
}

func TestADerivedSnapshotHasTheNewAgent(t *testing.T) {
	h := enginefake.NewHost(t)
	withAgent(h)
	e := h.Open()
	oldSnapshot(h, e, "old")
	for tag, fault := range map[string]string{"renewed": "", "kept": "update-refused"} {
		if fault != "" {
			h.Fault(fault, 1)
		}
		if _, err := e.DeriveSnapshot(t.Context(), sandbox.DeriveRequest{From: "old", Tag: tag, Warm: "x = 1"}, nil); err != nil {
			t.Fatal(err)
		}
		if a := h.AgentOf(tag); a.Can(agentproto.CanServices) != (fault == "") {
			t.Errorf("%s: the agent is %+v", tag, a)
		}
	}
}

func TestAFailedUpdateEndsItsChildOnly(t *testing.T) {
	for fault, want := range map[string]string{
		"update-refused": "refused its replacement: code runs",
		"update-fails":   "exec format error",
		"update-dies":    "the guest rebooted",
		"update-lies":    "lacks services",
	} {
		t.Run(fault, func(t *testing.T) {
			h := enginefake.NewHost(t)
			withAgent(h)
			e := h.Open()
			oldSnapshot(h, e, "old")
			h.Fault(fault, 1)
			r, err := e.Fork(t.Context(), web("old", 2))
			if err != nil {
				t.Fatal(err)
			}
			failed := slices.DeleteFunc(slices.Clone(r.Children), func(c sandbox.Child) bool { return c.Err == nil })
			if len(failed) != 1 || len(e.List()) != 1 {
				t.Fatalf("%d children failed and %d are there, want 1 each", len(failed), len(e.List()))
			}
			if text := failed[0].Err.Error(); !strings.Contains(text, want) || strings.ContainsAny(text, "\x1b\x00") ||
				len(text) > 3*updatewire.MaxReason {
				t.Errorf("got %q, want %q", text, want)
			}
		})
	}
}

func TestAnAgentThatCannotBeReplaced(t *testing.T) {
	for name, setup := range map[string]func(*enginefake.Host){
		"a daemon without a program": func(h *enginefake.Host) { h.Fault("agent-to-update", 1) },
		"an agent of before":         func(h *enginefake.Host) { withAgent(h); h.Fault("agent-of-before", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			setup(h)
			e := h.Open()
			h.Snapshot(e, "old")
			_, err := e.Fork(t.Context(), web("old", 1))
			var told *sandbox.Error
			if !errors.As(err, &told) || told.Reason() != sandbox.ReasonAgentOld || !strings.Contains(err.Error(), "again from its image") {
				t.Errorf("got %v", err)
			}
			h.Fork(e, "old", 1) // without services it works
			if _, err := e.DeriveSnapshot(t.Context(), sandbox.DeriveRequest{From: "old", Tag: "next",
				Warm: "x = 1"}, nil); err != nil {
				t.Errorf("derive: %v", err)
			}
		})
	}
}

func TestAMissingProgramRefusesTheFork(t *testing.T) {
	h := enginefake.NewHost(t)
	withAgent(h)
	e := h.Open()
	oldSnapshot(h, e, "old")
	if err := os.Truncate(h.Cfg.AgentBinary, updatewire.MaxProgram+1); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Fork(t.Context(), web("old", 1)); err == nil || !strings.Contains(err.Error(), "want 1 to") {
		t.Errorf("a huge program: got %v", err)
	}
	if err := os.Remove(h.Cfg.AgentBinary); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Fork(t.Context(), web("old", 1)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: got %v", err)
	}
	if n := len(e.List()); n != 0 {
		t.Errorf("%d children were made", n)
	}
}
