package forkbench

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/usage"
)

func TestSummaryIsOfMediansAndTheWorstRound(t *testing.T) {
	f := summarise([]round{
		{n: 10, ok: 10, pool: 10, floor: 100, armed: 300, ready: []float64{1, 2, 3}, eval: []float64{5, 6, 7}, evalDaemon: []float64{1, 2, 3}},
		{n: 10, ok: 9, pool: 8, floor: 100, armed: 100, ready: []float64{2, 3, 4}, eval: []float64{4, 5, 6}, evalDaemon: []float64{2, 3, 4}},
		{n: 10, ok: 10, pool: 10, floor: 50, armed: 100, ready: []float64{9, 9, 90}, eval: []float64{9, 9, 9}, evalDaemon: []float64{8, 8, 8}},
	})
	if f.OK != 9 || f.Pool != 8 || f.ArmedWallMS != 100 || f.FloorWallMS != 100 || f.Ratio != 2 || f.ReadyP50MS != 3 || f.ReadyP99MS != 4 ||
		f.EvalP50MS != 6 || f.EvalDaemonP50MS != 3 {
		t.Fatalf("got %+v", f)
	}
	if empty := summarise([]round{{n: 1, floor: 1}}); empty.ReadyP99MS != 0 {
		t.Fatalf("no child answered, yet %+v", empty)
	}
}

func TestUseIsOfMediansOverTheRoundsThatWereRead(t *testing.T) {
	mean := func(user, exits float64) usage.Mean {
		return usage.Mean{N: 1, UserMS: user, SystemMS: 1, Counters: &usage.Counters{Exits: exits, GuestFaults: 2 * exits}}
	}
	f := summarise([]round{
		{toReady: mean(10, 100), one: single{toReady: mean(5, 50)}}, {toReady: mean(30, 300), toAnswer: usage.Mean{N: 1, UserMS: 7}},
		{toReady: mean(20, 200)},
	})
	if u := f.ToReady; u == nil || u.UserMS != 20 || u.SystemMS != 1 || u.Exits != 200 || u.GuestFaults != 400 {
		t.Errorf("until ready: %+v", u)
	}
	if u := f.ToAnswer; u == nil || u.UserMS != 7 || u.Counters != nil {
		t.Errorf("until answered, without KVM's counters: %+v", u)
	}
	if f.OneToReady == nil || f.OneToReady.Exits != 50 || f.OneToAnswer != nil {
		t.Errorf("one: %+v, %+v", f.OneToReady, f.OneToAnswer)
	}
}

func TestPlot(t *testing.T) {
	f := summarise([]round{
		{n: 4, childArmed: []float64{1, 1, 2, 2}, ready: []float64{10, 20, 30, 40}, answered: []float64{50, 60, 70, 80}, one: single{times: times{[]float64{3}, []float64{4}, []float64{9}}}},
		{n: 4, childArmed: []float64{3, 3, 4, 4}, ready: []float64{12, 22, 32, 42}, answered: []float64{52, 62, 72, 82}, one: single{times: times{[]float64{2}, []float64{5}, []float64{7}}}},
	})
	if f.OneArmedMS != 3 || f.OneReadyMS != 5 || f.OneAnswerMS != 9 {
		t.Errorf("one child: %+v", f)
	}
	drawn := Plot(f)
	if len(drawn.Panels) != 2 || len(drawn.Notes) != 1 {
		t.Fatalf("%+v", drawn)
	}
	many, one := drawn.Panels[0], drawn.Panels[1]
	if many.Title != "4 children" || len(many.Ticks) != 11 || len(many.Series) != 3 {
		t.Errorf("%+v", many)
	}
	if ready := many.Series[1]; ready.Name != "ready" || ready.Values[0] != 10 || ready.Values[5] != 30 || ready.Values[10] != 42 {
		t.Errorf("%+v", ready)
	}
	if s := one.Series[2]; s.Name != "first eval answered" || !slices.Equal(s.Values, []float64{7, 9, 9}) {
		t.Errorf("%+v", s)
	}
	var b bytes.Buffer
	if err := drawn.SVG(&b); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"4 children", "One child", "armed", "ready", "first eval answered", "fastest", "ms from the request"} {
		if !strings.Contains(b.String(), ">"+word+"<") {
			t.Errorf("the drawing lacks %q", word)
		}
	}
}

// A snapshot without an interpreter has no answers to plot.
func TestPlotWithoutAnswers(t *testing.T) {
	drawn := Plot(summarise([]round{{n: 1, childArmed: []float64{1}, ready: []float64{2}, one: single{times: times{armed: []float64{1}, ready: []float64{2}}}}}))
	if len(drawn.Panels[1].Series) != 2 {
		t.Errorf("%+v", drawn.Panels[1])
	}
	var b bytes.Buffer
	if err := drawn.SVG(&b); err != nil || b.Len() == 0 {
		t.Error(err)
	}
}
