package netd_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
)

// told calls Untold until it has returned the wanted number of refusals.
func (b *bench) told(want int) (all []control.Line, lost int) {
	b.t.Helper()
	sum := 0
	eventually(b.t, fmt.Sprint(want, " refusals"), func() bool {
		u := b.s.Untold()
		for _, l := range u.Lines {
			sum += l.Count
		}
		all, lost = append(all, u.Lines...), lost+u.Lost
		return sum+lost >= want
	})
	if sum+lost != want {
		b.t.Errorf("%d refusals in %+v, %d lost, want %d", sum, all, lost, want)
	}
	slices.SortFunc(all, func(a, b control.Line) int { return strings.Compare(a.VM+a.Name, b.VM+b.Name) })
	return all, lost
}

// Refusals are kept until the next call, which returns each once. Allowed flows are not included.
func TestRefusalsWaitForTheDaemon(t *testing.T) {
	b := newBench(t)
	b.rules.set(func(q netd.Question) netd.Verdict {
		if q.Far.Port() == 1 {
			return netd.Verdict{Rule: "r", Text: "no"}
		}
		return allowAll(q)
	})
	g := b.bind("a", true)
	for range 3 {
		g.ask(netwire.TCP, netip.MustParseAddrPort("127.0.0.1:1"))
	}
	hangUp(g.openTCP(listen(t, echoTCP)))
	all, lost := b.told(3)
	if lost != 0 || len(all) == 0 || all[0].Sandbox != "s-a" || all[0].Verdict != control.Denied || all[0].Rule != "r" {
		t.Errorf("got %+v, %d lost", all, lost)
	}
	g.ask(netwire.TCP, netip.MustParseAddrPort("127.0.0.1:1"))
	b.told(1)
}

// A VM with many kinds of refusals uses only its own lines.
func TestRefusalsOfManyKindsAreTogether(t *testing.T) {
	b := newBench(t)
	b.rules.set(func(netd.Question) netd.Verdict { return netd.Verdict{Text: "no"} })
	flood, quiet := b.bind("a", true), b.bind("b", true)
	for port := range 100 {
		flood.ask(netwire.TCP, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port+1)))
	}
	quiet.ask(netwire.UDP, netip.MustParseAddrPort("127.0.0.1:1"))
	all, lost := b.told(101)
	if last := all[len(all)-1]; lost != 0 || last.VM != "b" || last.Protocol != "udp" {
		t.Errorf("got %+v, %d lost", all, lost)
	}
	if !slices.ContainsFunc(all, func(l control.Line) bool { return l.Name == control.Others && l.Count > 1 }) {
		t.Errorf("got %+v", all)
	}
}
