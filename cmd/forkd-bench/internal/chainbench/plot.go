package chainbench

import (
	"fmt"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/figure"
)

// aim is the largest acceptable ratio of a fork from a deep snapshot to a fork from the first.
const aim = 1.1

// Plot draws the rows: times, ratios, layers, and the crowd's shared memory.
func Plot(rows []Row) figure.Figure {
	const mib = 1 << 20
	var depths []string
	var ready, ratio, layer, dirty []float64
	f := figure.Figure{Title: "Forks from snapshots that lie deep in a chain"}
	memory := figure.Panel{Title: "Memory of a child", X: "", Y: "MiB", Bars: true,
		Ticks: []string{"PSS", "written", "shared"}}
	for _, r := range rows {
		depths = append(depths, fmt.Sprint(r.Depth))
		ready, ratio = append(ready, r.ReadyWallMS), append(ratio, r.RatioToBase)
		if r.Depth > 0 {
			layer, dirty = append(layer, float64(r.LayerBytes)/mib), append(dirty, float64(r.DirtyBytes)/mib)
		}
		if r.Crowd > 0 {
			memory.X = fmt.Sprintf("each of %d children of depth %d", r.Crowd, r.Depth)
			memory.Series = []figure.Series{{Name: "memory", Values: []float64{
				float64(r.PSSKiBPerChild) / 1024, float64(r.OwnKiBPerChild) / 1024, float64(r.SharedKiBPerChild) / 1024,
			}}}
		}
		f.Notes = []string{fmt.Sprintf("%d forks of %d children from each depth, medians; ratios are to a fork from depth "+
			"0 just before", r.Rounds, r.N)}
	}
	f.Panels = []figure.Panel{
		{Title: "Until all children are ready", X: "depth", Y: "ms", Ticks: depths, Series: []figure.Series{{Name: "ready", Values: ready}}},
		{Title: "Ratio to depth 0 (dashed: 1.1)", X: "depth", Y: "ratio", Bars: true, Aim: aim, Ticks: depths, Series: []figure.Series{{Name: "ratio", Values: ratio}}},
	}
	if len(layer) > 0 {
		f.Panels = append(f.Panels,
			figure.Panel{Title: "Bytes of the memory's layer", X: "depth", Y: "MiB", Bars: true,
				Ticks:  depths[len(depths)-len(layer):],
				Series: []figure.Series{{Name: "written to the disk", Values: layer}, {Name: "dirty", Values: dirty}}})
	}
	if len(memory.Series) > 0 {
		f.Panels = append(f.Panels, memory)
	}
	return f
}
