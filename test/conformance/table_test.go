package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// table holds the results: a row per operation, a column per canary.
type table struct {
	columns []string
	rows    []*cells
}

// cells holds one row.
type cells struct {
	name    string
	columns []string
	wrongs  map[string][]string
	notes   map[string]string // shown instead of ok
	settled bool
}

func (tb *table) row(name string) *cells {
	c := &cells{name: name, columns: tb.columns, wrongs: map[string][]string{}, notes: map[string]string{}}
	tb.rows = append(tb.rows, c)
	return c
}

func (c *cells) wrong(column, format string, args ...any) {
	c.wrongs[column] = append(c.wrongs[column], fmt.Sprintf(format, args...))
}

// note records the reason why there is no result.
func (c *cells) note(column, text string) { c.notes[column] = text }

// settle makes a subtest of each cell.
func (c *cells) settle(t *testing.T) {
	t.Helper()
	c.settled = true
	for _, column := range c.columns {
		t.Run(column, func(t *testing.T) {
			for _, text := range c.wrongs[column] {
				t.Error(text)
			}
		})
	}
	for column, texts := range c.wrongs {
		if !slices.Contains(c.columns, column) {
			t.Errorf("no column %s: %q", column, texts)
		}
	}
}

// text returns the table as text. A check that an operation did not reach is a dash.
func (tb *table) text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "\t%s\n", strings.Join(tb.columns, "\t"))
	for _, c := range tb.rows {
		fmt.Fprint(w, c.name)
		for _, column := range tb.columns {
			fmt.Fprintf(w, "\t%s", c.cell(column))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}

func (c *cells) cell(column string) string {
	switch {
	case len(c.wrongs[column]) > 0:
		return "FAIL"
	case !c.settled:
		return "-"
	case c.notes[column] != "":
		return c.notes[column]
	}
	return "ok"
}
