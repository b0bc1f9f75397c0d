package forkbench

import (
	"fmt"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/figure"
)

// step is the distance in percent of the children between two points of a distribution.
const step = 10

// Plot draws the times until children were armed, ready, and had answered their first eval: the
// distribution over all children of all rounds, and a single child.
func Plot(f Figures) figure.Figure {
	many := figure.Panel{
		Title: fmt.Sprintf("%d children", f.N), X: "% of the children, or fewer", Y: "ms from the request",
	}
	for at := 0; at <= 100; at += step {
		many.Ticks = append(many.Ticks, fmt.Sprint(at))
	}
	one := figure.Panel{
		Title: "One child", X: fmt.Sprintf("%d forks", f.Rounds), Y: "ms from the request", Bars: true,
		Ticks: []string{"fastest", "median", "slowest"},
	}
	for _, s := range []struct {
		name      string
		many, one []float64
	}{
		{"armed", f.many.armed, f.one.armed}, {"ready", f.many.ready, f.one.ready},
		{"first eval answered", f.many.answered, f.one.answered},
	} {
		many.Series = append(many.Series, distribution(s.name, s.many))
		if len(s.one) > 0 {
			one.Series = append(one.Series, figure.Series{Name: s.name,
				Values: []float64{s.one[0], quantile(s.one, 0.5), s.one[len(s.one)-1]}})
		}
	}
	return figure.Figure{
		Title: "From a fork's request to its children's first answers", Panels: []figure.Panel{many, one},
		Notes: []string{fmt.Sprintf("%d forks of %d children with %d shells ready; all children of all forks",
			f.Rounds, f.N, f.Pool)},
	}
}

// distribution returns a series of quantiles. It has no values if sorted is empty.
func distribution(name string, sorted []float64) figure.Series {
	s := figure.Series{Name: name}
	if len(sorted) == 0 {
		return s
	}
	for at := 0; at <= 100; at += step {
		s.Values = append(s.Values, quantile(sorted, float64(at)/100))
	}
	return s
}
