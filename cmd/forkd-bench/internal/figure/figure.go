package figure

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is a drawing.
type Figure struct {
	Title  string
	Notes  []string // printed below the panels, such as the machine
	Panels []Panel
}

// Panel is one pair of axes.
type Panel struct {
	Title  string
	X, Y   string   // labels of the axes, with units
	Ticks  []string // labels along X, one per value of each series
	Series []Series
	Bars   bool    // draw groups of bars, otherwise points joined by lines
	Aim    float64 // height of a horizontal target line; 0 for no line
}

// Series holds the values of one colour, by tick. NaN means no value.
type Series struct {
	Name   string
	Values []float64
}

// Sizes, in points.
const (
	panelWidth  vg.Length = 330
	panelHeight vg.Length = 225
	margin      vg.Length = 12
	titleHeight vg.Length = 26
	lineHeight  vg.Length = 12
	perRow                = 2
)

// palette holds the colours of Okabe and Ito, which colour-blind readers can distinguish.
var palette = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}, color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
}

// SVG writes the figure.
func (f Figure) SVG(w io.Writer) error {
	rows := max(1, (len(f.Panels)+perRow-1)/perRow)
	columns := max(1, min(perRow, len(f.Panels)))
	notes := lineHeight*vg.Length(len(f.Notes)) + margin
	c := vgsvg.New(panelWidth*vg.Length(columns)+2*margin, panelHeight*vg.Length(rows)+titleHeight+notes+margin)
	page := draw.New(c)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	write(page, 13, vg.Point{X: margin, Y: page.Max.Y - titleHeight/2 - margin/2}, f.Title)
	for i, n := range f.Notes {
		write(page, 8, vg.Point{X: margin, Y: notes - lineHeight*vg.Length(i+1)}, n)
	}
	if len(f.Panels) > 0 {
		area := draw.Crop(page, margin, -margin, notes, -titleHeight-margin/2)
		if err := f.panels(area, rows, columns); err != nil {
			return err
		}
	}
	_, err := c.WriteTo(w)
	return err
}

// panels draws the panels in rows, with their axes aligned.
func (f Figure) panels(area draw.Canvas, rows, columns int) error {
	grid := make([][]*plot.Plot, rows)
	for i := range grid {
		grid[i] = make([]*plot.Plot, columns)
	}
	for i, p := range f.Panels {
		drawn, err := p.plot()
		if err != nil {
			return fmt.Errorf("draw %q: %w", p.Title, err)
		}
		grid[i/columns][i%columns] = drawn
	}
	canvases := plot.Align(grid, draw.Tiles{Rows: rows, Cols: columns, PadX: margin, PadY: margin}, area)
	for i, row := range grid {
		for j, p := range row {
			if p != nil {
				p.Draw(canvases[i][j])
			}
		}
	}
	return nil
}

func (p Panel) plot() (*plot.Plot, error) {
	out := plot.New()
	out.Title.Text, out.X.Label.Text, out.Y.Label.Text = p.Title, p.X, p.Y
	out.Title.Padding, out.Legend.Top, out.Y.Min = vg.Points(6), true, 0
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	out.Add(grid)
	for i, s := range p.Series {
		add := p.line
		if p.Bars {
			add = p.bars
		}
		if err := add(out, i, s); err != nil {
			return nil, fmt.Errorf("series %s: %w", s.Name, err)
		}
	}
	if p.Aim > 0 {
		aim := plotter.NewFunction(func(float64) float64 { return p.Aim })
		aim.Dashes = []vg.Length{vg.Points(6), vg.Points(4)}
		out.Add(aim)
		out.Y.Max = max(out.Y.Max, p.Aim)
	}
	p.scale(out)
	return out, nil
}

// scale adds space for the legend, and sets the labels along X.
func (p Panel) scale(out *plot.Plot) {
	const headroom = 1.15
	if math.IsInf(out.Y.Max, 0) || out.Y.Max <= 0 {
		out.Y.Max = 1
	}
	out.Y.Min, out.Y.Max = 0, out.Y.Max*headroom
	if len(p.Ticks) > 0 {
		out.NominalX(p.Ticks...)
		slant(&out.X.Tick.Label, p.Ticks)
	}
	out.X.Min, out.X.Max = -0.5, max(1, float64(len(p.Ticks)))-0.5
}

// slant turns labels that would overlap.
func slant(style *text.Style, ticks []string) {
	const share = 0.8 // of the panel's width, which the labels have
	var widest vg.Length
	for _, t := range ticks {
		widest = max(widest, style.Width(t))
	}
	if widest*vg.Length(len(ticks)) > panelWidth*share {
		style.Rotation, style.XAlign, style.YAlign = math.Pi/7, draw.XRight, draw.YTop
	}
}

func (p Panel) bars(out *plot.Plot, i int, s Series) error {
	values := make(plotter.Values, len(s.Values))
	for t, v := range s.Values {
		if !math.IsNaN(v) {
			values[t] = v
		}
	}
	if len(values) == 0 {
		return nil
	}
	const share = 0.7 // of a tick's width
	n := vg.Length(len(p.Series))
	width := panelWidth * share * share / vg.Length(len(p.Ticks)) / n
	chart, err := plotter.NewBarChart(values, width)
	if err != nil {
		return err
	}
	chart.Color, chart.LineStyle.Width = palette[i%len(palette)], 0
	chart.Offset = width * (vg.Length(i) - (n-1)/2)
	out.Add(chart)
	p.name(out, s, chart)
	return nil
}

func (p Panel) line(out *plot.Plot, i int, s Series) error {
	var at plotter.XYs
	for t, v := range s.Values {
		if !math.IsNaN(v) {
			at = append(at, plotter.XY{X: float64(t), Y: v})
		}
	}
	if len(at) == 0 {
		return nil
	}
	line, points, err := plotter.NewLinePoints(at)
	if err != nil {
		return err
	}
	line.Color, line.Width = palette[i%len(palette)], vg.Points(1.5)
	points.Color, points.Shape = line.Color, draw.CircleGlyph{}
	out.Add(line, points)
	p.name(out, s, line, points)
	return nil
}

// name adds a series to the legend. A single series needs no legend.
func (p Panel) name(out *plot.Plot, s Series, thumbs ...plot.Thumbnailer) {
	if len(p.Series) > 1 {
		out.Legend.Add(s.Name, thumbs...)
	}
}

// write writes a line of text.
func write(c draw.Canvas, points float64, at vg.Point, line string) {
	c.FillText(text.Style{
		Color: color.Black, Font: font.From(plot.DefaultFont, vg.Points(points)), Handler: plot.DefaultTextHandler,
	}, at, line)
}
