package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/store/receipt"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// agentOf returns the agent's description in a snapshot's manifest.
func (h *host) agentOf(tag string) snapshot.Agent {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(h.cfg.StoreDir, "snapshots", tag, snapshot.ManifestFile))
	if err != nil {
		h.t.Fatal(err)
	}
	var m snapshot.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		h.t.Fatal(err)
	}
	return m.Agent
}

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
			h := newHost(t)
			e := h.open()
			if c.fault != "" {
				h.fault(c.fault, 1)
			}
			h.snapshot(e, "a")
			if got := h.agentOf("a"); got.Version != "fake" || !slices.Equal(got.Capabilities, c.can) {
				t.Errorf("the manifest has %+v", got)
			}
			sb := h.fork(e, "a", 1)[0]
			if r := h.receipt(e, receipt.OfSandbox, sb.ID); r.Identity.Way != string(c.way) || r.VM.PopulatedPages == 0 {
				t.Errorf("identity %+v, VM %+v", r.Identity, r.VM)
			}
			if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"}); err != nil {
				t.Fatal(err)
			}
			if got := h.agentOf("b"); !slices.Equal(got.Capabilities, c.can) {
				t.Errorf("the branch's manifest has %+v", got)
			}
			if _, err := e.Rollback(t.Context(), sb.ID, "b"); err != nil {
				t.Fatal(err)
			}
			if r := h.receipt(e, receipt.OfSandbox, sb.ID); r.Op != receipt.Rollback || r.Identity.Way != string(c.way) {
				t.Errorf("of the rollback: %+v", r.Identity)
			}
		})
	}
}

// If a snapshot records the identity port, a child that does not answer there is not an older one:
// no other channel is tried.
func TestAChildWithoutItsIdentityPortFails(t *testing.T) {
	h := newHost(t)
	h.cfg.IdentityTimeout = time.Second
	e := h.open()
	h.snapshot(e, "a")
	h.fault("identity-port-gone", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, c := range r.Children {
		if c.Err != nil {
			failed++
			wantError(t, c.Err, sandbox.ErrTimeout, "guest did not confirm its identity after 1s", "dial guest port 1025")
		}
	}
	if failed != 1 {
		t.Errorf("%d children failed, want 1", failed)
	}
}

func TestAnAgentIsNotAskedForWhatItDoesNotSayItCan(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.fault("agent-without-inventory", 1)
	h.snapshot(e, "a")
	h.snapshot(e, "b")
	_, err := e.DiffSnapshots(t.Context(), sandbox.DiffRequest{Before: "a", After: "b"})
	wantError(t, err, sandbox.ErrConflict, "the agent in snapshot a is too old")
}
