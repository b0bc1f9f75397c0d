package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/engine/guest"
	"github.com/forkd/forkd/internal/sandbox"
)

func TestTheNextDaemonAsksForTheSameToken(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	yes := true
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, PrivatePorts: &yes})
	if err != nil || r.Children[0].Err != nil {
		t.Fatal(r, err)
	}
	sb := r.Children[0].Info
	for range 2 {
		for _, id := range []string{sb.ID, sandbox.DNSID(sb.ID)} {
			if got := e.TrafficToken(id, 80); got != sb.TrafficToken || len(got) != 64 {
				t.Errorf("the token of %s is %q, want %q", id, got, sb.TrafficToken)
			}
		}
		h.close(e)
		e = h.open()
	}
	if got := e.TrafficToken("sb-none", 80); got != "" {
		t.Errorf("no sandbox has the token %q", got)
	}
}

func TestAGuestsForkIsPrivateIfItsSourceIs(t *testing.T) {
	g := newGuestBench(t)
	if child := g.forked(g.root.ID, 1)[0]; g.e.TrafficToken(child, 80) != "" {
		t.Error("the child of a public sandbox has a token")
	}
	yes := true
	r, err := g.e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, GuestFork: true, PrivatePorts: &yes})
	if err != nil || r.Children[0].Err != nil {
		t.Fatal(r, err)
	}
	of := r.Children[0].Info
	child := g.forked(of.ID, 1)[0]
	if token := g.e.TrafficToken(child, 80); len(token) != 64 || token == of.TrafficToken {
		t.Errorf("its token is %q, its source's %q", token, of.TrafficToken)
	}
}

// What waits for room on the host is not woken, whatever traffic there is.
func TestTrafficDoesNotWakeWhatHasNoRoom(t *testing.T) {
	h := newHost(t)
	e := h.open()
	sbs := h.disky(e, 2)
	id := sbs[0].ID
	asked := 0
	calls := guest.New(guest.Config{Sandboxes: e.sandboxes, Wake: func(_ context.Context, of string) (bool, error) {
		if asked++; of != id {
			t.Errorf("asked for %s", of)
		}
		return true, nil
	}})
	other := errors.New("it sleeps")
	if woken, err := calls.Wake(t.Context(), id, other); woken || err != nil {
		t.Errorf("one that runs: %v, %v", woken, err)
	}
	h.fill(e, id)
	_, noRoom := e.DialPort(t.Context(), id, 80)
	if woken, err := calls.Wake(t.Context(), id, noRoom); woken || err != nil || asked != 0 {
		t.Errorf("one without room: %v, %v, asked %d times", woken, err, asked)
	}
	if woken, err := e.Wake(t.Context(), id, other); woken || err != nil {
		t.Errorf("nobody can wake it: %v, %v", woken, err)
	}
	id = sbs[1].ID
	h.pause(e, id)
	if woken, err := calls.Wake(t.Context(), sandbox.DNSID(id), other); !woken || err != nil || asked != 1 {
		t.Errorf("one that is paused otherwise: %v, %v, asked %d times", woken, err, asked)
	}
}
