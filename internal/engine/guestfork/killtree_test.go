package guestfork_test

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// A tree with guests that keep forking is ended completely, whichever of its sandboxes is named.
// Other sandboxes are not ended.
func TestATreeThatForksOnIsEnded(t *testing.T) {
	g := enginefake.NewGuestBench(t, func(c *engine.Config) { c.GuestFork = sandbox.TreeLimits{Size: 30, Depth: 8, MemoryMiB: 1 << 20} })
	children := g.Forked(g.Root.ID, 3)
	other, err := g.E.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})
	if err != nil || other.Children[0].Err != nil {
		t.Fatal(err, other)
	}
	var bombs sync.WaitGroup
	for i, id := range children {
		bombs.Go(func() {
			for n := 1000 * (i + 1); ; n++ {
				if _, err := g.TryCall(id, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpFork, N: 1, Token: enginefake.TokenOf(n)}}); err != nil {
					return // its VM has ended
				}
			}
		})
	}
	enginefake.Eventually(t, "a tree that grows", func() bool { return len(g.E.List()) > 9 })
	ended, err := g.E.KillTree(t.Context(), children[1])
	if err != nil {
		t.Fatal(err)
	}
	if len(ended) <= 8 || !slices.Contains(ended, children[0]) || slices.Contains(ended, other.Children[0].Info.ID) {
		t.Errorf("it says that it ended %q", ended)
	}
	if left := g.E.List(); len(left) != 1 || left[0].ID != other.Children[0].Info.ID {
		t.Errorf("these are left: %+v", left)
	}
	bombs.Wait()
	if _, err := g.E.KillTree(t.Context(), children[1]); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("once more: %v", err)
	}
	// A sandbox without forks is also a tree, even if it has failed.
	p, err := os.FindProcess(other.Children[0].Info.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failure", func() bool {
		i, err := g.E.Get(other.Children[0].Info.ID)
		return err == nil && i.Status == sandbox.StatusFailed
	})
	if ended, err := g.E.KillTree(t.Context(), other.Children[0].Info.ID); err != nil || len(ended) != 1 || len(g.E.List()) != 0 {
		t.Errorf("alone: %v, %+v", err, g.E.List())
	}
}
