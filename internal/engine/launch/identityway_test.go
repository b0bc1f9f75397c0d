package launch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/store/receipt"
)

// The channel of an identity depends on the capabilities of the agent when the snapshot was made.
// Derived snapshots use the same channel.
func TestASnapshotSaysHowItsChildrenAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		fault string
		can   []string
		way   launch.Way
	}{
		"an agent of today": {"", []string{agentproto.CanIdentityPort, agentproto.CanInventory,
			agentproto.CanIdentityTokens}, launch.ByPort},
		"one of before":               {"agent-of-before", nil, launch.ByHTTP},
		"one that says odd things":    {"agent-that-lies", []string{agentproto.CanIdentityPort}, launch.ByPort},
		"one that cannot do all that": {"agent-without-inventory", []string{agentproto.CanIdentityPort}, launch.ByPort},
	} {
		t.Run(name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			e := h.Open()
			if c.fault != "" {
				h.Fault(c.fault, 1)
			}
			h.Snapshot(e, "a")
			if got := h.AgentOf("a"); got.Version != "fake" || !slices.Equal(got.Capabilities, c.can) {
				t.Errorf("the manifest has %+v", got)
			}
			sb := h.Fork(e, "a", 1)[0]
			if r := enginefake.Receipt(h, e, receipt.OfSandbox, sb.ID); r.Identity.Way != string(c.way) || r.VM.PopulatedPages == 0 {
				t.Errorf("identity %+v, VM %+v", r.Identity, r.VM)
			}
			if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"}); err != nil {
				t.Fatal(err)
			}
			if got := h.AgentOf("b"); !slices.Equal(got.Capabilities, c.can) {
				t.Errorf("the branch's manifest has %+v", got)
			}
			if _, err := e.Rollback(t.Context(), sb.ID, "b"); err != nil {
				t.Fatal(err)
			}
			if r := enginefake.Receipt(h, e, receipt.OfSandbox, sb.ID); r.Op != receipt.Rollback || r.Identity.Way != string(c.way) {
				t.Errorf("of the rollback: %+v", r.Identity)
			}
		})
	}
}

// If a snapshot records the identity port, a child that does not answer there is not an older one:
// no other channel is tried.
func TestAChildWithoutItsIdentityPortFails(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.IdentityTimeout = time.Second
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("identity-port-gone", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, c := range r.Children {
		if c.Err != nil {
			failed++
			enginefake.WantError(t, c.Err, sandbox.ErrTimeout, "guest did not confirm its identity after 1s", "dial guest port 1025")
		}
	}
	if failed != 1 {
		t.Errorf("%d children failed, want 1", failed)
	}
}

func TestAnAgentIsNotAskedForWhatItDoesNotSayItCan(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Fault("agent-without-inventory", 1)
	h.Snapshot(e, "a")
	h.Snapshot(e, "b")
	_, err := e.DiffSnapshots(t.Context(), sandbox.DiffRequest{Before: "a", After: "b"})
	enginefake.WantError(t, err, sandbox.ErrConflict, "the agent in snapshot a is too old")
}
