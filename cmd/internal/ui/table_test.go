package ui

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestATableFitsItsTerminal(t *testing.T) {
	header := []string{"ID", "SNAPSHOT", "PID", "MEMORY", "REASON"}
	rows := [][]string{
		{"sb-00000001-0001", "a-snapshot-with-a-long-name", "1234567", "120 MiB", "its disk has lost writes, which \u00e4 long text tells"},
		{"sb-00000001-0002", "py", "", "1.5 GiB", ""},
	}
	fit := Fit{Cut: []string{"SNAPSHOT", "REASON"}, Drop: []string{"PID", "REASON"}}
	for width, want := range map[int]string{
		200: "ID                SNAPSHOT                     PID      MEMORY   REASON\n" +
			"sb-00000001-0001  a-snapshot-with-a-long-name  1234567  120 MiB  its disk has lost writes, which \u00e4 long text tells\n" +
			"sb-00000001-0002  py                           -        1.5 GiB  -\n",
		80: "ID                SNAPSHOT               PID      MEMORY   REASON\n" +
			"sb-00000001-0001  a-snapshot-with-a-lo…  1234567  120 MiB  its disk has lost wr…\n" +
			"sb-00000001-0002  py                     -        1.5 GiB  -\n",
		50: "ID                SNAPSHOT    MEMORY   REASON\n" +
			"sb-00000001-0001  a-snapsho…  120 MiB  its disk h…\n" +
			"sb-00000001-0002  py          1.5 GiB  -\n",
		20: "ID                S…\n" +
			"sb-00000001-0001  a…\n" +
			"sb-00000001-0002  p…\n",
	} {
		var out bytes.Buffer
		if err := (&Printer{Out: &out}).fitted(header, rows, fit, width); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%d columns: got\n%swant\n%s", width, out.String(), want)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(line) - 1; n > width {
				t.Errorf("a line has %d columns of %d: %s", n, width, line)
			}
		}
	}
}

func TestATableElsewhereIsWhole(t *testing.T) {
	var fitted, plain bytes.Buffer
	header, row := []string{"ID", "REASON"}, []string{"sb-1", strings.Repeat("long ", 100)}
	err1 := (&Printer{Out: &fitted}).FittedTable(header, [][]string{row}, Fit{Cut: header})
	err2 := (&Printer{Out: &plain}).Table(header, [][]string{row})
	if err1 != nil || err2 != nil || fitted.String() != plain.String() || !strings.Contains(plain.String(), row[1]) {
		t.Errorf("got %q, %v, %v", fitted.String(), err1, err2)
	}
}

func TestRowsAsTheyCome(t *testing.T) {
	var out bytes.Buffer
	rows := (&Printer{Out: &out}).Rows([]string{"ID", "INDEX", "REASON"}, 4)
	for _, row := range [][]string{{"", "2", "no room\x1b"}, {"sb-1", "1", ""}} {
		if err := rows.Add(row); err != nil {
			t.Fatal(err)
		}
	}
	if want := "ID    INDEX  REASON\n-     2      no room\nsb-1  1      -\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestAMeterIsForTerminals: elsewhere only its notes are shown.
func TestAMeterIsForTerminals(t *testing.T) {
	var errOut bytes.Buffer
	p := &Printer{Err: &errOut}
	m := p.Meter("copy", func(int64, int64) string { t.Error("nobody sees it"); return "" })
	m.Total(10)
	m.Add(5)
	m.Note("skipped %s", "x")
	m.End()
	p.Busy("verify", "all").End()
	if errOut.String() != "skipped x\n" {
		t.Errorf("got %q", errOut.String())
	}
}
