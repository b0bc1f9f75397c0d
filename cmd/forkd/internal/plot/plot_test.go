package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden drawing")

func some() Figure {
	return Figure{
		Title: "Pauses <of> branches & more",
		Notes: []string{"forkd 1: forkd bench", "2 × some CPU"},
		Panels: []Panel{
			{Title: "bars", X: "case", Y: "ms", Bars: true, Aim: 5, Ticks: []string{"live", "diff"}, Series: []Series{{"p50", []float64{1.5, 8}}, {"p99", []float64{4, math.NaN()}}}},
			{Title: "lines", X: "depth", Y: "ratio", Ticks: []string{"0", "1", "3"}, Series: []Series{{"fork", []float64{1, 0.98, 1.07}}}},
			{Title: "nothing", X: "x", Y: "y"},
		},
	}
}

func TestADrawing(t *testing.T) {
	var b bytes.Buffer
	if err := some().SVG(&b); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/some.svg"
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Error("the drawing changed: look at it, and run with -update")
	}
	for dec := xml.NewDecoder(&b); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("it is no XML: %v", err)
		}
	}
	if s := string(want); strings.Contains(s, "NaN") || strings.Contains(s, "<of>") {
		t.Error("it has what must not be in it")
	}
}

func TestScales(t *testing.T) {
	for most, want := range map[float64]float64{0: 1, 0.7: 0.8, 1: 1, 1.5: 1.5, 4.2: 5, 8: 8, 15: 15, 99: 100, 101: 150} {
		highest, step := Panel{Series: []Series{{Values: []float64{most}}}}.scale()
		if math.Abs(highest-want) > 1e-9 || highest < most || highest/step < 2 || highest/step > 8 {
			t.Errorf("up to %v: an axis to %v in steps of %v, want %v", most, highest, step, want)
		}
	}
}
