package netbench

import (
	"strings"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/figure"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/netnative"
)

// tick is one figure in a panel.
type tick struct{ figure, name string }

// Plot draws figures beside their floors, and the cost of the network for guests.
func Plot(native, guests []netnative.Figure) figure.Figure {
	all := map[string]netnative.Figure{}
	for _, f := range append(append([]netnative.Figure{}, native...), guests...) {
		all[f.Name] = f
	}
	drawn := figure.Figure{Title: "The network, beside its floors"}
	add := func(p figure.Panel) {
		if len(p.Ticks) > 0 {
			drawn.Panels = append(drawn.Panels, p)
		}
	}
	add(beside(all, "Connecting, p50", "us", "direct", tick{"connect_relayed_p50", "relayed"},
		tick{"connect_handed_p50", "handed over"}, tick{"answer_sni_p50", "by SNI, to an answer"}))
	add(beside(all, "Carrying bytes", "ms of CPU per GiB", "loopback",
		tick{"bulk_relayed_from_guest", "relayed, out"}, tick{"bulk_relayed_to_guest", "relayed, in"},
		tick{"bulk_handed_from_guest", "handed, out"}, tick{"bulk_handed_to_guest", "handed, in"}))
	attach := beside(all, "Attaching VMs in one batch", "us a VM", "descriptors alone",
		tick{"attach_64", "64 VMs"}, tick{"attach_1000", "1000 VMs"})
	attach.Aim = all["attach_64"].AtMost
	add(attach)
	add(ratios(guests))
	return drawn
}

// beside draws figures and their floors. A missing figure has no tick.
func beside(all map[string]netnative.Figure, title, unit, floor string, ticks ...tick) figure.Panel {
	p := figure.Panel{Title: title, X: "what", Y: unit, Bars: true,
		Series: []figure.Series{{Name: "forkd"}, {Name: floor}}}
	for _, t := range ticks {
		if f, known := all[t.figure]; known {
			p.Ticks = append(p.Ticks, t.name)
			p.Series[0].Values = append(p.Series[0].Values, f.Value)
			p.Series[1].Values = append(p.Series[1].Values, f.Floor)
		}
	}
	return p
}

// ratios draws the ratios of guests with network to guests without.
func ratios(guests []netnative.Figure) figure.Panel {
	p := figure.Panel{Title: "With network to without; TCP to our stream", X: "figure", Y: "ratio", Bars: true, Aim: 1,
		Series: []figure.Series{{Name: "ratio"}}}
	for _, f := range guests {
		if f.By == netnative.Ratio {
			p.Ticks = append(p.Ticks, strings.ReplaceAll(f.Name, "_", " "))
			p.Series[0].Values = append(p.Series[0].Values, f.Result)
		}
	}
	return p
}
