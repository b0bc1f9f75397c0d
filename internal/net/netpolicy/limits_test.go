package netpolicy

import (
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	b := NewBudget(Limits{Flows: 3, FlowsPerSecond: 4, DNSPerSecond: 2, BytesPerSecond: 10000})
	for i, want := range []Reason{"", "", "", LimitFlows} {
		if got := b.BeginFlow(noon); got != want {
			t.Errorf("flow %d: got %q, want %q", i, got, want)
		}
	}
	b.EndFlow()
	b.EndFlow()
	for i, want := range []Reason{"", LimitRate} {
		if got := b.BeginFlow(noon); got != want {
			t.Errorf("flow %d after two ended: got %q, want %q", i, got, want)
		}
	}
	if got := b.BeginFlow(noon.Add(250 * time.Millisecond)); got != "" || b.Flows() != 3 {
		t.Errorf("a quarter of a second later: got %q, and %d flows", got, b.Flows())
	}
	for i, want := range []bool{true, true, false} {
		if got := b.TakeDNS(noon); got != want {
			t.Errorf("query %d: got %t", i, got)
		}
	}
	if wait := b.In(noon, 15000); wait != 500*time.Millisecond {
		t.Errorf("bytes in: wait %s", wait)
	}
	if wait := b.Out(noon, 10000); wait != 0 {
		t.Errorf("bytes out: wait %s", wait)
	}
	b.SetLimits(Limits{})
	if wait := b.In(noon, 1<<30); wait != 0 {
		t.Errorf("without a limit: wait %s", wait)
	}
}

func TestLimitsAreChecked(t *testing.T) {
	for _, l := range []Limits{{Flows: -1}, {Flows: 1 << 20}, {FlowsPerSecond: -1}, {DNSPerSecond: 1 << 20}, {BytesPerSecond: 5}} {
		if _, err := Compile(Spec{Limits: l}); err == nil {
			t.Errorf("%+v compiles", l)
		}
	}
}
