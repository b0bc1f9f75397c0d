package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// gap is the number of spaces between the columns of a table.
const gap = 2

// minColumn is the smallest width of a shortened column.
const minColumn = 8

// Fit describes how to make a table as narrow as a terminal. Columns are named by the header.
type Fit struct {
	Cut  []string // columns with cells that may be cut
	Drop []string // columns that may be left out, in this order
}

// Table prints rows under a header. With Quiet it prints the first column only. It cleans the
// cells, which may come from a guest or a file.
func (p *Printer) Table(header []string, rows [][]string) error {
	if p.Quiet {
		for _, row := range rows {
			if err := p.Line("%s", Clean(row[0])); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(p.Out, 0, 8, gap, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(cleaned(row), "\t"))
	}
	return w.Flush()
}

// FittedTable prints a Table with lines no longer than the width of its terminal. Without a
// terminal it is Table.
func (p *Printer) FittedTable(header []string, rows [][]string, f Fit) error {
	width := Width(p.Out)
	if width == 0 || p.Quiet {
		return p.Table(header, rows)
	}
	return p.fitted(header, rows, f, width)
}

func (p *Printer) fitted(header []string, rows [][]string, f Fit, width int) error {
	lines := [][]string{header}
	for _, row := range rows {
		lines = append(lines, cleaned(row))
	}
	columns := f.columns(lines, width)
	for _, line := range lines {
		var b strings.Builder
		for i, c := range columns {
			cell := cut(line[c.at], c.width)
			if i < len(columns)-1 {
				cell = fmt.Sprintf("%-*s", c.width+gap, cell)
			}
			b.WriteString(cell)
		}
		if err := p.Line("%s", strings.TrimRight(cut(b.String(), width), " ")); err != nil {
			return err
		}
	}
	return nil
}

// Width returns the width of terminal w, or 0 if w is not a terminal.
func Width(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || !Terminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// cleaned returns a row of cells in the form for display.
func cleaned(row []string) []string {
	cells := make([]string, len(row))
	for i, cell := range row {
		if cells[i] = Clean(cell); cell == "" {
			cells[i] = "-"
		}
	}
	return cells
}

// column is a displayed column.
type column struct{ at, width int }

// columns returns the columns that fit. It leaves out columns only if cutting is not enough.
func (f Fit) columns(lines [][]string, width int) (out []column) {
	header, widths := lines[0], widthsOf(lines)
	for dropped := 0; ; dropped++ {
		out = out[:0]
		for i, name := range header {
			if !slices.Contains(f.Drop[:dropped], name) {
				out = append(out, column{i, widths[i]})
			}
		}
		if f.narrow(out, header, width) || dropped == len(f.Drop) {
			return out
		}
	}
}

// narrow cuts the widest of the columns in Cut until all columns fit. It reports whether they fit.
func (f Fit) narrow(columns []column, header []string, width int) bool {
	for {
		total := gap * (len(columns) - 1)
		var widest *column
		for i := range columns {
			c := &columns[i]
			total += c.width
			least := max(minColumn, utf8.RuneCountInString(header[c.at]))
			if slices.Contains(f.Cut, header[c.at]) && c.width > least && (widest == nil || c.width > widest.width) {
				widest = c
			}
		}
		if total <= width || widest == nil {
			return total <= width
		}
		widest.width--
	}
}

func widthsOf(lines [][]string) []int {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// cut shortens a cell to a number of characters, including the mark of the cut.
func cut(cell string, width int) string {
	runes := []rune(cell)
	switch {
	case len(runes) <= width:
		return cell
	case width <= 0:
		return ""
	}
	return string(runes[:width-1]) + ellipsis.Mark
}

// Rows prints a table row by row, as rows arrive. Columns have the width of the header, the first
// row or the least width, whichever is largest.
type Rows struct {
	printer *Printer
	header  []string
	least   []int
	widths  []int // nil before the first row
}

// Rows begins such a table. The header is printed with the first row. least are minimum widths of
// its first columns.
func (p *Printer) Rows(header []string, least ...int) *Rows {
	return &Rows{printer: p, header: header, least: least}
}

// Add prints a row.
func (r *Rows) Add(row []string) error {
	row = cleaned(row)
	if r.widths == nil {
		r.widths = widthsOf([][]string{r.header, row})
		for i, n := range r.least {
			r.widths[i] = max(r.widths[i], n)
		}
		if err := r.line(r.header); err != nil {
			return err
		}
	}
	return r.line(row)
}

func (r *Rows) line(cells []string) error {
	var b strings.Builder
	for i, cell := range cells {
		if i == len(cells)-1 {
			b.WriteString(cell)
			break
		}
		fmt.Fprintf(&b, "%-*s", r.widths[i]+gap, cell)
	}
	return r.printer.Line("%s", b.String())
}
