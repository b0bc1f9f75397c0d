package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// fakeSide returns fixed values, and records its calls.
type fakeSide struct {
	name   string
	values []float64 // one per lap, in order; later laps fail
	n      int
	log    *[]string
}

func (f *fakeSide) Settle(context.Context) error { return nil }

func (f *fakeSide) Lap(context.Context) ([]Value, error) {
	*f.log = append(*f.log, f.name)
	if f.n == len(f.values) {
		return nil, errors.New("no lap left")
	}
	f.n++
	return []Value{{"armed_wall_ms", f.values[f.n-1]}, {"exits", 100}}, nil
}

func TestSidesTakeTurnsAndTheFirstLapDoesNotCount(t *testing.T) {
	var log []string
	a := &fakeSide{name: "a", values: []float64{1000, 10, 20, 30}, log: &log}
	b := &fakeSide{name: "b", values: []float64{1000, 5, 10, 15}, log: &log}
	said := 0
	got, err := Run(t.Context(), a, b, 3, func(string) { said++ })
	if err != nil {
		t.Fatal(err)
	}
	if order := strings.Join(log, ""); order != "ab"+"ab"+"ba"+"ab" {
		t.Errorf("the order of the laps is %s", order)
	}
	if len(got) != 2 || got[0].Name != "armed_wall_ms" || got[1].Name != "exits" || said != 3 {
		t.Fatalf("%+v, said %d", got, said)
	}
	if f := got[0]; f.A != 20 || f.B != 10 || !near(f.Ratio, 0.5, 1e-12) || !near(f.Low, 0.5, 1e-12) || !near(f.High, 0.5, 1e-12) || f.Pairs != 3 {
		t.Errorf("%+v", f)
	}
	if f := got[1]; f.Ratio != 1 {
		t.Errorf("%+v", f)
	}
}

func TestALapThatFailsEndsTheRun(t *testing.T) {
	var log []string
	a, b := &fakeSide{name: "a", values: []float64{1, 1, 1}, log: &log}, &fakeSide{name: "b", values: []float64{1}, log: &log}
	_, err := Run(t.Context(), a, b, 3, func(string) {})
	if fmt.Sprint(err) != "round 1: side B: no lap left" || !slices.Equal(log, []string{"a", "b", "a", "b"}) {
		t.Errorf("%v after %q", err, log)
	}
}
