package engine

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// A tree with guests that keep forking is ended completely, whichever of its sandboxes is named.
// Other sandboxes are not ended.
func TestATreeThatForksOnIsEnded(t *testing.T) {
	g := newGuestBench(t, func(c *Config) { c.GuestFork = sandbox.TreeLimits{Size: 30, Depth: 8, MemoryMiB: 1 << 20} })
	children := g.forked(g.root.ID, 3)
	other, err := g.e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})
	if err != nil || other.Children[0].Err != nil {
		t.Fatal(err, other)
	}
	var bombs sync.WaitGroup
	for i, id := range children {
		bombs.Go(func() {
			for n := 1000 * (i + 1); ; n++ {
				if _, err := g.tryCall(id, fakeCall{Req: forkwire.Request{Op: forkwire.OpFork, N: 1, Token: tokenOf(n)}}); err != nil {
					return // its VM has ended
				}
			}
		})
	}
	eventually(t, "a tree that grows", func() bool { return len(g.e.List()) > 9 })
	ended, err := g.e.KillTree(t.Context(), children[1])
	if err != nil {
		t.Fatal(err)
	}
	if len(ended) <= 8 || !slices.Contains(ended, children[0]) || slices.Contains(ended, other.Children[0].Info.ID) {
		t.Errorf("it says that it ended %q", ended)
	}
	if left := g.e.List(); len(left) != 1 || left[0].ID != other.Children[0].Info.ID {
		t.Errorf("these are left: %+v", left)
	}
	bombs.Wait()
	if _, err := g.e.KillTree(t.Context(), children[1]); !errors.Is(err, sandbox.ErrNotFound) {
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
	eventually(t, "failure", func() bool {
		i, err := g.e.Get(other.Children[0].Info.ID)
		return err == nil && i.Status == sandbox.StatusFailed
	})
	if ended, err := g.e.KillTree(t.Context(), other.Children[0].Info.ID); err != nil || len(ended) != 1 || len(g.e.List()) != 0 {
		t.Errorf("alone: %v, %+v", err, g.e.List())
	}
}
