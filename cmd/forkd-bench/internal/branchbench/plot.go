package branchbench

import (
	"fmt"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/figure"
)

// Plot draws the pauses of live branches, also in the order of the branches, the pauses of diffs
// beside the bare copy, and the time until calls with wait=false return.
func Plot(cases []Case) figure.Figure {
	f := figure.Figure{Title: "Branching a sandbox that writes: how long it is paused"}
	var live, diff []Case
	for _, c := range cases {
		if c.Mode == api.BranchDiff {
			diff = append(diff, c)
		} else {
			live = append(live, c)
		}
		f.Notes = append(f.Notes,
			fmt.Sprintf("%s, %d MiB: %d branches in a row, the guest writes %d MiB/s over %d MiB",
				c.Mode, c.SourceMiB, c.Runs, c.DirtyMiBPerS, c.DirtyMiB))
	}
	if len(live) > 0 {
		f.Panels = append(f.Panels, quantiles("Pause, copying while it runs", live), inARow(live))
	}
	if len(diff) > 0 {
		p := quantiles("Pause, diff: all is copied in it", diff)
		p.Series = append(p.Series, series("bare memcpy", diff, func(c Case) float64 { return c.FloorMS }))
		f.Panels = append(f.Panels, p)
	}
	if len(cases) > 0 {
		f.Panels = append(f.Panels, figure.Panel{
			Title: "From its running again to the answer (wait=false)", X: "mode and memory of the source", Y: "ms", Bars: true,
			Ticks: names(cases),
			Series: []figure.Series{
				series("p50", cases, func(c Case) float64 { return c.AfterResumeP50MS }),
				series("p99", cases, func(c Case) float64 { return c.AfterResumeP99MS }),
			},
		})
	}
	return f
}

func quantiles(title string, cases []Case) figure.Panel {
	return figure.Panel{
		Title: title, X: "mode and memory of the source", Y: "ms", Bars: true, Ticks: names(cases),
		Series: []figure.Series{
			series("p50", cases, func(c Case) float64 { return c.PauseP50MS }),
			series("p90", cases, func(c Case) float64 { return c.PauseP90MS }),
			series("p99", cases, func(c Case) float64 { return c.PauseP99MS }),
		},
	}
}

// inARow draws the pauses in order. The last pause must be as short as the first.
func inARow(cases []Case) figure.Panel {
	p := figure.Panel{Title: "One branch after another", X: "branch", Y: "pause, ms"}
	most := 0
	for i, c := range cases {
		most = max(most, len(c.PausesMS))
		p.Series = append(p.Series, figure.Series{Name: names(cases)[i], Values: c.PausesMS})
	}
	for i := range most {
		p.Ticks = append(p.Ticks, fmt.Sprint(i+1))
	}
	return p
}

func names(cases []Case) (out []string) {
	for _, c := range cases {
		out = append(out, fmt.Sprintf("%s, %d MiB", c.Mode, c.SourceMiB))
	}
	return out
}

func series(name string, cases []Case, of func(Case) float64) figure.Series {
	s := figure.Series{Name: name}
	for _, c := range cases {
		s.Values = append(s.Values, of(c))
	}
	return s
}
