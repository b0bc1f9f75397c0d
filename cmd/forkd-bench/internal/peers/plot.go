package peers

import (
	"fmt"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/figure"
)

// Plot draws times and memory of the available peers. The other peers are notes.
func Plot(rows []Row) figure.Figure {
	f := figure.Figure{Title: "Isolated guests with a Python that answers, on one host"}
	times := figure.Panel{Title: "Until the last has started, and answered", Y: "ms", Bars: true}
	memory := figure.Panel{Title: "Memory of an idle guest", Y: "MiB", Bars: true}
	var started, answered, pss, host []float64
	for _, r := range rows {
		if r.OK == 0 {
			f.Notes = append(f.Notes, fmt.Sprintf("%s did not run: %s", r.Peer, firstLine(r.Reason)))
			continue
		}
		times.Ticks = append(times.Ticks, r.Peer)
		times.X, memory.X = fmt.Sprintf("%d guests", r.N), fmt.Sprintf("each of %d", r.N)
		started, answered = append(started, r.StartedMS), append(answered, r.AnsweredMS)
		pss, host = append(pss, float64(r.PSSKiB)/1024), append(host, max(0, float64(r.MemAvailableDeltaKiB)/1024))
	}
	memory.Ticks = times.Ticks
	times.Series = []figure.Series{{Name: "started", Values: started}, {Name: "answered", Values: answered}}
	memory.Series = []figure.Series{{Name: "PSS", Values: pss}, {Name: "of the host's available", Values: host}}
	f.Panels = []figure.Panel{times, memory}
	return f
}

// firstLine shortens s to one line for a note.
func firstLine(s string) string {
	const most = 100
	for i, r := range s {
		if r == '\n' || i >= most {
			return s[:i]
		}
	}
	return s
}
