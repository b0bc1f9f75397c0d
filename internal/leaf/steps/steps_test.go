package steps

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"
)

func TestReportsEndWithTheirStep(t *testing.T) {
	s := Step{At: 100, Took: 50}
	for _, c := range []struct {
		name string
		took []time.Duration
		want [][2]time.Duration // begin and duration
	}{
		{"shorter than the step", []time.Duration{10, 20}, [][2]time.Duration{{120, 10}, {130, 20}}},
		{"as long", []time.Duration{25, 25}, [][2]time.Duration{{100, 25}, {125, 25}}},
		{"too long", []time.Duration{30, 40}, [][2]time.Duration{{100, 10}, {110, 40}}},
		{"much too long", []time.Duration{5, math.MaxInt64, 5}, [][2]time.Duration{{100, 0}, {100, 45}, {145, 5}}},
		{"negative", []time.Duration{math.MinInt64, 5}, [][2]time.Duration{{145, 0}, {145, 5}}},
		{"none", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var in []Reported
			for _, d := range c.took {
				in = append(in, Reported{"clock", d})
			}
			var got [][2]time.Duration
			for _, o := range s.Ending(Guest, in) {
				got = append(got, [2]time.Duration{o.At, o.Took})
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestNamesAreOfTheList(t *testing.T) {
	got := Step{Took: 9}.Ending(Guest, []Reported{{"clock", 1}, {"map", 1}, {"\x1b[2J", 1}, {"", 1}, {"agent memory", 1}})
	for i, want := range []string{"clock", Other, Other, Other, "agent-memory"} {
		if got[i].Name != want || got[i].By != Guest {
			t.Errorf("step %d: %+v, want %s", i, got[i], want)
		}
	}
	if n := len(Step{}.Ending(VMM, make([]Reported, 1<<20))); n != MaxReported {
		t.Errorf("%d steps of one report", n)
	}
}

func TestWithoutARecorderNothingIsMade(t *testing.T) {
	r := From(context.Background())
	fail := func() []Step { t.Error("the list was made"); return nil }
	r.Put(fail)
	r.PutChild(1, fail)
	if r.Steps() != nil || r.Child(1) != nil {
		t.Error("a nil Recorder has steps")
	}
}

func TestARecorderLimitsChildren(t *testing.T) {
	ctx, r := With(context.Background(), 2)
	for i := range 4 {
		From(ctx).PutChild(i, func() []Step { return []Step{{Name: "turn"}} })
	}
	From(ctx).Put(func() []Step { return []Step{{Name: "capture"}} })
	if len(r.Child(1)) != 1 || len(r.Child(2)) != 0 || r.Steps()[0].Name != "capture" {
		t.Errorf("got %v, %v, %v", r.Steps(), r.Child(1), r.Child(2))
	}
}

// Whatever is reported, the steps are in order within their step.
func FuzzReports(f *testing.F) {
	f.Add(int64(100), int64(50), int64(10), int64(20), "clock")
	f.Add(int64(math.MaxInt64/2), int64(math.MaxInt64/2), int64(math.MaxInt64), int64(math.MinInt64), "map")
	f.Fuzz(func(t *testing.T, at, took, a, b int64, name string) {
		s := Step{At: time.Duration(at / 2), Took: time.Duration(took / 2)}
		last := s.At
		for _, o := range s.Ending(VMM, []Reported{{name, time.Duration(a)}, {name, time.Duration(b)}}) {
			if o.At < last || o.Took < 0 || o.At+o.Took > s.At+max(s.Took, 0) {
				t.Errorf("%+v is not within %+v", o, s)
			}
			if !slices.Contains(Names(VMM), o.Name) {
				t.Errorf("the name is %q", o.Name)
			}
			last = o.At + o.Took
		}
	})
}
