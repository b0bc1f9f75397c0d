package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// columns are the checks of each VM made in one way (docs/inside/testing.md describes them).
var columns = []string{"recv", "datagram", "page", "listen", "policy", "secret", "state", "mac", "silent", "source"}

// row is one way to make another VM, with its errors by column.
type row struct {
	name   string
	wrongs map[string][]string
	notes  map[string]string // shown instead of ok
}

func newRow(name string) *row {
	return &row{name: name, wrongs: map[string][]string{}, notes: map[string]string{}}
}

func (r *row) wrong(column, format string, args ...any) {
	r.wrongs[column] = append(r.wrongs[column], fmt.Sprintf(format, args...))
}

// want records an error, if it is not nil.
func (r *row) want(column string, err error) {
	if err != nil {
		r.wrong(column, "%v", err)
	}
}

func (r *row) cell(column string) string {
	switch {
	case len(r.wrongs[column]) > 0:
		return "FAIL"
	case r.notes[column] != "":
		return r.notes[column]
	}
	return "ok"
}

// settle makes a subtest of each cell, and logs all of them as a table.
func settle(t *testing.T, columns []string, rows []*row) {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "\t%s\n", strings.Join(columns, "\t"))
	for _, r := range rows {
		fmt.Fprint(w, r.name)
		for _, column := range columns {
			fmt.Fprintf(w, "\t%s", r.cell(column))
			t.Run(r.name+"/"+column, func(t *testing.T) {
				for _, text := range r.wrongs[column] {
					t.Error(text)
				}
			})
		}
		fmt.Fprintln(w)
		for column, texts := range r.wrongs {
			if !slices.Contains(columns, column) {
				t.Errorf("no column %s: %q", column, texts)
			}
		}
	}
	_ = w.Flush()
	t.Logf("\n%s", b.String())
}
