package placement

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// bench is a board with a clock of its own.
func bench(nodes ...Facts) (*Board, *time.Time) {
	now := time.Unix(1e9, 0)
	b := New(Config{Now: func() time.Time { return now }, Random: rand.New(rand.NewPCG(1, 1))})
	for _, f := range nodes {
		if f.Asked.IsZero() {
			f.Asked = now
		}
		b.Observe(f)
	}
	return b, &now
}

func ok(name string) Facts { return Facts{Name: name, Capacity: 1000, DiskFree: 0.5} }

func (f Facts) with(change func(*Facts)) Facts {
	change(&f)
	return f
}

func TestFilter(t *testing.T) {
	want := Request{Snapshot: "s", Holders: true, Base: 100, Unique: 10, Count: 2, CPUFeatures: []string{"avx"}, Pool: "p", Node: "a"}
	good := ok("a").with(func(f *Facts) {
		f.Pool, f.CPUFeatures, f.Used, f.Snapshots = "p", []string{"avx", "sse"}, 880, map[string]Presence{"s": {}}
	})
	for name, c := range map[string]struct {
		node   Facts
		reason string
	}{
		"fits to the last MiB":  {good, ""},
		"draining":              {good.with(func(f *Facts) { f.Draining = true }), draining},
		"another node":          {good.with(func(f *Facts) { f.Name = "b" }), otherNode},
		"another pool":          {good.with(func(f *Facts) { f.Pool = "q" }), otherPool},
		"a feature is missing":  {good.with(func(f *Facts) { f.CPUFeatures = []string{"sse"} }), lacksFeature},
		"1 MiB is missing":      {good.with(func(f *Facts) { f.Used = 881 }), lacksMemory},
		"used above the type":   {good.with(func(f *Facts) { f.Used = math.MaxInt64 }), lacksMemory},
		"negative capacity":     {good.with(func(f *Facts) { f.Capacity = math.MinInt64 }), lacksMemory},
		"the disk is full":      {good.with(func(f *Facts) { f.DiskFree = 0.14 }), lacksDisk},
		"the disk is no number": {good.with(func(f *Facts) { f.DiskFree = math.NaN() }), lacksDisk},
		"old facts":             {good.with(func(f *Facts) { f.Asked = time.Unix(1e9-40, 0) }), staleFacts},
		"another snapshot only": {good.with(func(f *Facts) { f.Snapshots = map[string]Presence{"t": {}} }), lacksParent},
		"an incomplete list":    {good.with(func(f *Facts) { f.More = true }), ""},
		"the base is in memory": {good.with(func(f *Facts) {
			f.Used, f.Snapshots = 980, map[string]Presence{"s": {Running: true}}
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := bench(c.node)
			_, err := b.Claim(want).Next()
			var none *NoNodeError
			switch {
			case c.reason == "" && err != nil:
				t.Error(err)
			case c.reason != "" && (!errors.As(err, &none) || none.Reasons[c.reason] != 1):
				t.Errorf("got %v, want %q", err, c.reason)
			}
		})
	}
}

func TestNoNodeIsKnown(t *testing.T) {
	b, _ := bench()
	if _, err := b.Claim(Request{}).Next(); err == nil || !strings.Contains(err.Error(), "no node is known") {
		t.Error(err)
	}
}

func TestOrder(t *testing.T) {
	with := func(p Presence) func(*Facts) {
		return func(f *Facts) { f.Used, f.Snapshots = 102, map[string]Presence{"s": p} }
	}
	for name, c := range map[string]struct{ first, second Facts }{
		"prepared shells before layers": {ok("a").with(with(Presence{Bytes: 9, BytesPresent: 1, Prepared: 1})),
			ok("b").with(with(Presence{Bytes: 9, BytesPresent: 9}))},
		"all layers before some": {ok("a").with(with(Presence{Bytes: 9, BytesPresent: 9})),
			ok("b").with(with(Presence{Bytes: 9, BytesPresent: 8}))},
		"some layers before load": {ok("a").with(with(Presence{Bytes: 9, BytesPresent: 1})),
			ok("b").with(func(f *Facts) { f.Used = 100 })},
		"load in the end": {ok("a").with(func(f *Facts) { f.Used = 100 }), ok("b").with(func(f *Facts) { f.Used = 101 })},
		"load first if it differs clearly": {ok("a").with(func(f *Facts) { f.Used = 100 }),
			ok("b").with(with(Presence{Bytes: 9, BytesPresent: 9, Prepared: 9})).with(func(f *Facts) { f.Used = 200 })},
		"load is relative to capacity": {ok("a").with(func(f *Facts) { f.Capacity, f.Used = 10000, 900 }),
			ok("b").with(func(f *Facts) { f.Used = 100 })},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // whatever the order of the sample
				b, _ := bench(c.second, c.first)
				if node, err := b.Claim(Request{Snapshot: "s", Unique: 1}).Next(); node != "a" || err != nil {
					t.Fatalf("%s, %v", node, err)
				}
			}
		})
	}
}

func TestATimeOutRepeatsAtTheSameNode(t *testing.T) {
	b, now := bench(ok("a"), ok("b"), ok("c"))
	c := b.Claim(Request{ID: "r", Unique: 10})
	first, _ := c.Next()
	for i, err := range []error{context.DeadlineExceeded, &Refusal{Unreachable, errors.New("refused")}, context.DeadlineExceeded} {
		done, err := c.Result(err)
		if last := i == 2; done != last {
			t.Fatalf("after %d time-outs: done %v", i+1, done)
		}
		var unknown *UnknownError
		if i == 2 && (!errors.As(err, &unknown) || unknown.Node != first || unknown.RequestID != "r") {
			t.Fatalf("in the end: %v", err)
		}
		if node, _ := c.Next(); node != first {
			t.Fatalf("question %d went to %s, the first to %s", i+2, node, first)
		}
	}
	n := b.byName[first]
	fresh := func(after time.Duration) {
		*now = now.Add(after)
		f := ok(first)
		f.Asked = *now
		b.Observe(f)
	}
	if fresh(30 * time.Second); n.promised != 10 {
		t.Errorf("%d MiB promised while the node may still work, want 10", n.promised)
	}
	if fresh(31 * time.Second); n.promised != 0 || len(n.taken) != 0 {
		t.Errorf("%d MiB promised for ever", n.promised)
	}
}

func TestOnlyRefusalsLeadToAnotherNode(t *testing.T) {
	b, _ := bench(ok("a"), ok("b"))
	asked := 0
	final := errors.New("400: no such snapshot")
	_, err := b.Place(t.Context(), Request{}, func(context.Context, string) error { asked++; return final })
	if err != final || asked != 1 {
		t.Errorf("a final answer: %v after %d questions", err, asked)
	}
	var nodes []string
	_, err = b.Place(t.Context(), Request{Unique: 1}, func(_ context.Context, node string) error {
		nodes = append(nodes, node)
		return &Refusal{Busy, errors.New("busy")}
	})
	var none *NoNodeError
	if !errors.As(err, &none) || none.Reasons["asked already"] != 2 || !strings.HasSuffix(err.Error(), "The last refusal: busy") {
		t.Errorf("refused by all: %v", err)
	}
	if len(nodes) != 2 || nodes[0] == nodes[1] {
		t.Errorf("asked %v", nodes)
	}
	for _, n := range b.nodes {
		if n.promised != 0 || len(n.held) != 0 {
			t.Errorf("%s still has %d MiB promised", n.facts.Name, n.promised)
		}
	}
}

func TestTriesAreBounded(t *testing.T) {
	var nodes []Facts
	for i := range 20 {
		nodes = append(nodes, ok(string(rune('a'+i))))
	}
	b, _ := bench(nodes...)
	asked := 0
	_, err := b.Place(t.Context(), Request{}, func(context.Context, string) error {
		asked++
		return &Refusal{Full, errors.New("no memory")}
	})
	var gaveUp *GaveUpError
	if !errors.As(err, &gaveUp) || gaveUp.Tries != 8 || asked != 8 {
		t.Errorf("%v after %d questions", err, asked)
	}
}

// The caller goes away during a question. Its outcome is unknown, and no second node is asked.
func TestACallerGoesAway(t *testing.T) {
	b, _ := bench(ok("a"), ok("b"))
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	_, err := b.Place(ctx, Request{ID: "r", Unique: 10}, func(ctx context.Context, _ string) error {
		asked++
		cancel()
		return ctx.Err()
	})
	var unknown *UnknownError
	if !errors.As(err, &unknown) || asked != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %d questions", err, asked)
	}
}

func TestForgottenAndOldFacts(t *testing.T) {
	b, now := bench(ok("a"), ok("b"), ok("c"))
	b.Observe(ok("a").with(func(f *Facts) { f.Asked, f.Draining = now.Add(-time.Second), true }))
	if b.byName["a"].facts.Draining {
		t.Error("older facts replaced newer ones")
	}
	open := b.Claim(Request{Node: "a"})
	if _, err := open.Next(); err != nil {
		t.Fatal(err)
	}
	b.Forget("a")
	b.Forget("a")
	if done, err := open.Result(nil); !done || err != nil {
		t.Errorf("a claim at a forgotten node: %v", err)
	}
	b.Forget("c")
	for range 10 {
		if node, err := b.Claim(Request{Unique: 1}).Next(); node != "b" {
			t.Fatalf("%s, %v", node, err)
		}
	}
}

// Prepared shells are counted down between facts: a burst does not wait at the node with one shell.
func TestPreparedShellsArePromisedOnce(t *testing.T) {
	b, _ := bench(ok("a").with(func(f *Facts) { f.Snapshots = map[string]Presence{"s": {Prepared: 1}} }), ok("b"))
	r := Request{Snapshot: "s", Unique: 1}
	if node, _ := b.Claim(r).Next(); node != "a" {
		t.Fatalf("the first went to %s", node)
	}
	if node, _ := b.Claim(r).Next(); node != "b" {
		t.Errorf("the second went to %s", node)
	}
}
