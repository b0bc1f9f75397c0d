package guest_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

func TestTheNextDaemonAsksForTheSameToken(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	yes := true
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, PrivatePorts: &yes})
	if err != nil || r.Children[0].Err != nil {
		t.Fatal(r, err)
	}
	sb := r.Children[0].Info
	for range 2 {
		for _, id := range []string{sb.ID, sandbox.DNSID(sb.ID)} {
			got, err := e.PortAccess(id, 80)
			if want := (sandbox.PortAccess{Token: sb.TrafficToken}); got != want || len(got.Token) != 64 || err != nil {
				t.Errorf("the rule of %s is %+v, want %+v; %v", id, got, want, err)
			}
		}
		h.Close(e)
		e = h.Open()
	}
	if got, err := e.PortAccess("sb-none", 80); got != (sandbox.PortAccess{}) || !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("the rule of no sandbox is %+v, %v", got, err)
	}
}

func TestAGuestsForkIsPrivateIfItsSourceIs(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	if got, err := g.E.PortAccess(g.Forked(g.Root.ID, 1)[0], 80); got != (sandbox.PortAccess{Public: true}) || err != nil {
		t.Errorf("the rule of a public sandbox's child is %+v, %v", got, err)
	}
	yes := true
	r, err := g.E.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, GuestFork: true, PrivatePorts: &yes})
	if err != nil || r.Children[0].Err != nil {
		t.Fatal(r, err)
	}
	of := r.Children[0].Info
	child := g.Forked(of.ID, 1)[0]
	got, err := g.E.PortAccess(child, 80)
	if got.Public || len(got.Token) != 64 || got.Token == of.TrafficToken || err != nil {
		t.Errorf("its rule is %+v, its source's token %q; %v", got, of.TrafficToken, err)
	}
}
