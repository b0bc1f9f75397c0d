package engine_test

import (
	"context"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/guestfork"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// An intermediate snapshot is kept exactly as long as it is needed.
func TestSnapshotsInBetween(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	child := g.Forked(g.Root.ID, 1)[0]
	tag := g.Transient()[0]
	grand := g.Forked(child, 1)[0]
	if err := g.E.Kill(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	if _, err := g.E.Branch(t.Context(), sandbox.BranchRequest{SandboxID: grand, Tag: "kept"}); err != nil {
		t.Fatal(err)
	}
	if err := g.E.Kill(t.Context(), grand); err != nil {
		t.Fatal(err)
	}
	g.E.Families().Sweep(t.Context())
	if now := g.Transient(); len(now) != 2 || !slices.Contains(now, tag) {
		t.Errorf("what a snapshot is built on: %q", now)
	}
	if err := g.E.DeleteSnapshot(t.Context(), "kept", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.NoneTransient()
	g.StoredIs("a")
}

// Waiters hold connections, and a guest has a limited number of them. They do not keep the engine
// from closing.
func TestWaitersAreBoundedAndLetGo(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	g.Forked(g.Root.ID, 1)
	done := make(chan struct{}, guestfork.MaxCalls)
	for range guestfork.MaxCalls {
		go func() {
			defer func() { done <- struct{}{} }()
			g.TryCall(g.Root.ID, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpWait}})
		}()
	}
	enginefake.Eventually(t, "full house", func() bool { return g.E.Families().Calls(g.Root.ID) == guestfork.MaxCalls })
	if _, err := g.TryCall(g.Root.ID, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpWait}}); err == nil {
		t.Error("one more was let in")
	}
	for _, i := range g.E.List() {
		if err := g.E.Kill(context.Background(), i.ID); err != nil {
			t.Error(err)
		}
	}
	for range guestfork.MaxCalls {
		<-done
	}
}
