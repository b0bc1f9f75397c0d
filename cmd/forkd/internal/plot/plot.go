package plot

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Figure is a drawing.
type Figure struct {
	Title  string
	Notes  []string // below the panels, such as the machine
	Panels []Panel
}

// Panel is one pair of axes.
type Panel struct {
	Title  string
	X, Y   string   // names of the axes, with their units
	Ticks  []string // along X, one per value of each series
	Series []Series
	Bars   bool    // groups of bars; otherwise points joined by lines
	Aim    float64 // a line across at that height; 0: none
}

// Series is the values of one colour, by tick. NaN is none.
type Series struct {
	Name   string
	Values []float64
}

// Sizes in pixels.
const (
	panelWidth  = 440.0
	panelHeight = 300.0
	left        = 64.0 // room for the Y axis
	right       = 16.0
	top         = 84.0 // title, panel's title, names of the series
	bottom      = 52.0 // X axis
	lineHeight  = 16.0
	perRow      = 2
)

// style: currentColor-like ink that a dark page turns over. The colours of the series
// are of middle lightness, so that they stand out on white and on black, and differ
// in lightness too for those who see no colours (after Okabe and Ito).
const style = `<style>
text{font:12px system-ui,sans-serif;fill:#24292f}
.title{font-size:16px;font-weight:600}.panel{font-weight:600}.note{font-size:11px;fill:#57606a}
.page{fill:#ffffff}.axis{stroke:#57606a;stroke-width:1;fill:none}.grid{stroke:#d0d7de;stroke-width:1}.aim{stroke:#57606a;stroke-width:1.5;stroke-dasharray:6 4}
.s0{fill:#0072b2;stroke:#0072b2}.s1{fill:#e69f00;stroke:#e69f00}.s2{fill:#009e73;stroke:#009e73}.s3{fill:#cc79a7;stroke:#cc79a7}
.line{fill:none;stroke-width:2}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.page{fill:#0d1117}.axis,.aim{stroke:#9198a1}.grid{stroke:#30363d}
.s0{fill:#56b4e9;stroke:#56b4e9}}
</style>
`

// colors is how many series a panel can tell apart.
const colors = 4

// SVG writes the figure.
func (f Figure) SVG(w io.Writer) error {
	b := bufio.NewWriter(w)
	rows := (len(f.Panels) + perRow - 1) / perRow
	columns := float64(min(perRow, max(1, len(f.Panels))))
	width := columns * panelWidth
	height := float64(rows)*panelHeight + 28 + lineHeight*float64(len(f.Notes)) + 12
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img">`+"\n", num(width), num(height), num(width), num(height))
	fmt.Fprintf(b, "<title>%s</title>\n%s", html.EscapeString(f.Title), style)
	fmt.Fprintf(b, `<rect class="page" width="%s" height="%s"/>`+"\n", num(width), num(height))
	put(b, "title", "start", 16, 24, f.Title)
	for i, p := range f.Panels {
		fmt.Fprintf(b, `<g transform="translate(%s,%s)">`+"\n", num(float64(i%perRow)*panelWidth), num(float64(i/perRow)*panelHeight+8))
		p.draw(b)
		b.WriteString("</g>\n")
	}
	for i, n := range f.Notes {
		put(b, "note", "start", 16, float64(rows)*panelHeight+28+lineHeight*float64(i), n)
	}
	b.WriteString("</svg>\n")
	return b.Flush()
}

func (p Panel) draw(b *bufio.Writer) {
	area := frame{left, panelWidth - right, top, panelHeight - bottom}
	highest, step := p.scale()
	put(b, "panel", "start", area.x0, top-36, p.Title)
	p.legend(b, area)
	for v := 0.0; v <= highest+step/2; v += step {
		y := area.y(v / highest)
		line(b, "grid", area.x0, y, area.x1, y)
		put(b, "", "end", area.x0-6, y+4, label(v))
	}
	slot := (area.x1 - area.x0) / float64(max(1, len(p.Ticks)))
	for i, t := range p.Ticks {
		put(b, "", "middle", area.x0+slot*(float64(i)+0.5), area.y1+16, t)
	}
	put(b, "", "middle", (area.x0+area.x1)/2, area.y1+36, p.X)
	fmt.Fprintf(b, `<text text-anchor="middle" transform="translate(14,%s) rotate(-90)">%s</text>`+"\n", num((area.y0+area.y1)/2), html.EscapeString(p.Y))
	for i, s := range p.Series {
		class := fmt.Sprintf("s%d", i%colors)
		if p.Bars {
			p.bars(b, area, s, class, i, slot, highest)
		} else {
			points(b, area, s, class, slot, highest)
		}
	}
	if p.Aim > 0 && p.Aim <= highest {
		line(b, "aim", area.x0, area.y(p.Aim/highest), area.x1, area.y(p.Aim/highest))
	}
	line(b, "axis", area.x0, area.y0, area.x0, area.y1)
	line(b, "axis", area.x0, area.y1, area.x1, area.y1)
}

func (p Panel) legend(b *bufio.Writer, area frame) {
	if len(p.Series) < 2 {
		return
	}
	x := area.x0
	for i, s := range p.Series {
		fmt.Fprintf(b, `<rect class="s%d" x="%s" y="%s" width="10" height="10"/>`+"\n", i%colors, num(x), num(top-25))
		put(b, "", "start", x+14, top-16, s.Name)
		x += 30 + 6.6*float64(len([]rune(s.Name)))
	}
}

func (p Panel) bars(b *bufio.Writer, area frame, s Series, class string, i int, slot, highest float64) {
	width := slot * 0.8 / float64(len(p.Series))
	for t, v := range s.Values {
		if math.IsNaN(v) {
			continue
		}
		y := area.y(v / highest)
		fmt.Fprintf(b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`+"\n", class,
			num(area.x0+slot*(float64(t)+0.1)+width*float64(i)), num(y), num(width*0.94), num(area.y1-y), html.EscapeString(s.Name+" "+value(v)))
	}
}

func points(b *bufio.Writer, area frame, s Series, class string, slot, highest float64) {
	var path []string
	for t, v := range s.Values {
		if math.IsNaN(v) {
			continue
		}
		x, y := area.x0+slot*(float64(t)+0.5), area.y(v/highest)
		path = append(path, num(x)+","+num(y))
		fmt.Fprintf(b, `<circle class="%s" cx="%s" cy="%s" r="4"><title>%s</title></circle>`+"\n", class, num(x), num(y), html.EscapeString(s.Name+" "+value(v)))
	}
	fmt.Fprintf(b, `<polyline class="%s line" style="fill:none" points="%s"/>`+"\n", class, strings.Join(path, " "))
}

// scale is a round number that no value is above, and the distance of the grid's lines.
func (p Panel) scale() (highest, step float64) {
	most := p.Aim
	for _, s := range p.Series {
		for _, v := range s.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				most = max(most, v)
			}
		}
	}
	if most <= 0 {
		most = 1
	}
	step = math.Pow(10, math.Floor(math.Log10(most)))
	switch f := most / step; {
	case f <= 1:
		step /= 5
	case f <= 2:
		step /= 2
	case f > 5:
		step *= 2
	}
	return step * math.Ceil(most/step-1e-9), step
}

// frame is the area within the axes.
type frame struct{ x0, x1, y0, y1 float64 }

// y is the height of a share of the highest value.
func (f frame) y(share float64) float64 {
	return f.y1 - (f.y1-f.y0)*min(max(share, 0), 1)
}

func line(b *bufio.Writer, class string, x0, y0, x1, y1 float64) {
	fmt.Fprintf(b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, num(x0), num(y0), num(x1), num(y1))
}

func put(b *bufio.Writer, class, anchor string, x, y float64, text string) {
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(b, `<text%s text-anchor="%s" x="%s" y="%s">%s</text>`+"\n", class, anchor, num(x), num(y), html.EscapeString(text))
}

// num is a coordinate, to a tenth.
func num(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// label is a number at an axis; value one that is pointed at.
func label(v float64) string { return fmt.Sprintf("%.4g", v) }
func value(v float64) string { return fmt.Sprintf("%.3g", v) }
