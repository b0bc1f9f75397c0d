package figure

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func some() Figure {
	return Figure{
		Title: "Pauses <of> branches & more",
		Notes: []string{"forkd-bench 1: forkd-bench branch", "2 × some CPU"},
		Panels: []Panel{
			{Title: "bars", X: "case", Y: "ms", Bars: true, Aim: 5, Ticks: []string{"live", "diff"}, Series: []Series{{"p50", []float64{1.5, 8}}, {"p99", []float64{4, math.NaN()}}}},
			{Title: "lines", X: "depth", Y: "ratio", Ticks: []string{"0", "1", "3"}, Series: []Series{{"fork", []float64{1, math.NaN(), 1.07}}}},
			{Title: "nothing", X: "x", Y: "y"},
		},
	}
}

// texts returns the texts of a drawing, which must be valid XML.
func texts(t *testing.T, svg []byte) (all []string) {
	t.Helper()
	for dec := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("it is no XML: %v", err)
		}
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			all = append(all, string(text))
		}
	}
}

func TestADrawingHasAllItsWords(t *testing.T) {
	var b bytes.Buffer
	if err := some().SVG(&b); err != nil {
		t.Fatal(err)
	}
	words := "|" + strings.Join(texts(t, b.Bytes()), "|") + "|"
	for _, want := range []string{
		"Pauses <of> branches & more", "forkd-bench 1: forkd-bench branch", "2 × some CPU",
		"bars", "lines", "nothing", "case", "ms", "live", "diff", "p50", "p99", "depth", "ratio", "0", "3",
	} {
		if !strings.Contains(words, "|"+want+"|") {
			t.Errorf("the drawing lacks %q: %s", want, words)
		}
	}
	if strings.Contains(words, "|fork|") || strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error("it has a legend of one series, or no number")
	}
}

func TestADrawingIsTheSameEachTime(t *testing.T) {
	var a, b bytes.Buffer
	if err := errors.Join(some().SVG(&a), some().SVG(&b)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two drawings of the same figures differ")
	}
}

func TestAFigureOfNothing(t *testing.T) {
	for _, f := range []Figure{{}, {Title: "t", Panels: []Panel{{Title: "p", Bars: true, Series: []Series{{Name: "none"}}}}}} {
		var b bytes.Buffer
		if err := f.SVG(&b); err != nil || len(b.Bytes()) == 0 {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestAxesBeginAtZeroAndHoldEverything(t *testing.T) {
	p, err := Panel{Bars: true, Aim: 12, Ticks: []string{"a"}, Series: []Series{{"s", []float64{7}}}}.plot()
	if err != nil {
		t.Fatal(err)
	}
	if p.Y.Min != 0 || p.Y.Max < 12 {
		t.Errorf("the axis is from %v to %v", p.Y.Min, p.Y.Max)
	}
}

// Labels that would overlap are turned, others are not.
func TestLongLabelsAreSlanted(t *testing.T) {
	for label, want := range map[string]bool{"live": false, "postgres-fixture, playwright-browser": true} {
		p := Panel{Bars: true, Ticks: []string{label, label}, Series: []Series{{"s", []float64{1, 2}}}}
		out, err := p.plot()
		if err != nil {
			t.Fatal(err)
		}
		if got := out.X.Tick.Label.Rotation != 0; got != want {
			t.Errorf("%q: slanted is %v", label, got)
		}
	}
}
