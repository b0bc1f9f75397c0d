package guestfork_test

import (
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

func TestActsOfGuests(t *testing.T) {
	told := &enginefake.Acts{}
	g := enginefake.NewGuestBench(t, func(c *engine.Config) { c.Acts = told.Add })
	children := g.Forked(g.Root.ID, 2)
	if a := exit(g, children[0], 0, 0); a.Error != nil {
		t.Fatal(a.Error)
	}
	g.Fault("restore-fail", 1)
	if a := g.Fork(g.Root.ID, 1); a.Error == nil {
		t.Fatalf("got %+v", a)
	}
	want := []string{"sandbox.fork guest", "sandbox.fork guest"}
	if got := told.Of(g.Root.ID); !slices.Equal(got, want) {
		t.Errorf("of the first it was told %v", got)
	}
	told.Mu.Lock()
	if first, second := told.All[0], told.All[len(told.All)-1]; first.Count != 2 || first.Err != nil || second.Err == nil {
		t.Errorf("it was told %+v and %+v", first, second)
	}
	told.Mu.Unlock()
	enginefake.Eventually(t, "the exit", func() bool { return slices.Equal(told.Of(children[0]), []string{"sandbox.exit guest"}) })
}
