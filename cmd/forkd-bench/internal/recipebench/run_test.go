package recipebench

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure/measuretest"
)

// echo is work that the fake guest knows.
func echo(answer string) Work {
	return Work{Recipe: "py", Warm: Way{Eval: "6 * 7"}, Prepare: Way{Exec: []string{"echo"}},
		Cold: Way{Exec: []string{"echo", answer}}, Want: "42"}
}

func TestBothWaysAreAskedAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := measuretest.Start(t)
		var said []string
		rows, err := Run(t.Context(), Config{Client: d.Client, Rounds: 2, Works: []Work{echo("42")},
			Say: func(s string) { said = append(said, s) }})
		if err != nil || len(rows) != 1 || rows[0].Recipe != "py" || rows[0].Rounds != 2 {
			t.Fatalf("%+v, %v", rows, err)
		}
		if want := []string{"py, round 0 of 2", "py, round 1 of 2", "py, round 2 of 2"}; !slices.Equal(said, want) {
			t.Errorf("%q", said)
		}
		d.Empty()
	})
}

func TestAWrongAnswerIsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := measuretest.Start(t)
		for name, w := range map[string]Work{
			`answers "41", want "42"`:   echo("41"),
			"no such program":           {Recipe: "py", Warm: Way{Exec: []string{"false"}}},
			"other":                     {Recipe: "other"},
			"RuntimeError: raised":      {Recipe: "py", Warm: Way{Eval: "raise"}},
			`answers "42", want "none"`: {Recipe: "py", Warm: Way{Eval: "x"}, Want: "none"},
		} {
			_, err := Run(t.Context(), Config{Client: d.Client, Rounds: 1, Works: []Work{w}})
			if err == nil || !strings.Contains(err.Error(), "recipe "+w.Recipe) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		d.Empty()
	})
}

func TestThePlotHasARowPerRecipe(t *testing.T) {
	f := Plot([]Row{{Recipe: "a", Rounds: 3, AnswerMS: 100, ColdMS: 2000, Times: 20}, {Recipe: "b", Rounds: 3}})
	if len(f.Panels) != 2 || !slices.Equal(f.Panels[0].Ticks, []string{"a", "b"}) || f.Panels[0].Series[1].Values[0] != 2 ||
		f.Panels[1].Series[0].Values[0] != 20 {
		t.Errorf("%+v", f)
	}
	var b bytes.Buffer
	if err := f.SVG(&b); err != nil || b.Len() == 0 {
		t.Error(err)
	}
}

func TestHoweverItEndsNothingIsLeft(t *testing.T) {
	measuretest.InterruptEach(t, func(ctx context.Context, d *measuretest.Daemon) error {
		_, err := Run(ctx, Config{Client: d.Client, Rounds: 1, Works: []Work{echo("42")}})
		return err
	})
}
