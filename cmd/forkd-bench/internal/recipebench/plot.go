package recipebench

import (
	"fmt"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/figure"
)

// Plot draws the rows: the first answer of a fork beside a cold start's, and their ratio.
func Plot(rows []Row) figure.Figure {
	f := figure.Figure{Title: "Recipes: from a fork to its first useful answer, and the same work done cold"}
	var names []string
	var answer, cold, times []float64
	for _, r := range rows {
		names = append(names, r.Recipe)
		answer, cold = append(answer, r.AnswerMS/1000), append(cold, r.ColdMS/1000)
		times = append(times, r.Times)
		f.Notes = []string{fmt.Sprintf("medians of %d rounds; cold: a fresh process in a running guest of the same snapshot",
			r.Rounds)}
	}
	f.Panels = []figure.Panel{
		{Title: "Until the first useful answer", Y: "s", Bars: true, Ticks: names,
			Series: []figure.Series{{Name: "fork", Values: answer}, {Name: "cold", Values: cold}}},
		{Title: "Cold, divided by the fork", Y: "ratio", Bars: true, Ticks: names, Aim: 1,
			Series: []figure.Series{{Name: "ratio", Values: times}}},
	}
	return f
}
