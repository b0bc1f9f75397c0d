package compare

import (
	"math"
	"testing"
)

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

func TestStudentTIsThatOfTheTables(t *testing.T) {
	for freedom, want := range map[int]float64{1: 12.7062, 4: 2.7764, 10: 2.2281, 11: 2.2010, 15: 2.1314, 20: 2.0860, 30: 2.0423, 60: 2.0003, 120: 1.9799, 1000: 1.9623} {
		if got := studentT(freedom); !near(got, want, 0.0005) {
			t.Errorf("%d degrees of freedom: %.4f, want %.4f", freedom, got, want)
		}
	}
}

func TestARatioAndItsInterval(t *testing.T) {
	// The logs of the ratios are 0, ln 2 and ln 4: mean ln 2, standard deviation ln 2.
	f := figure("ms", []float64{1, 10, 3}, []float64{1, 20, 12})
	half := math.Exp(4.3027 * math.Ln2 / math.Sqrt(3))
	if !near(f.Ratio, 2, 1e-9) || !near(f.High, 2*half, 1e-3) || !near(f.Low, 2/half, 1e-6) || f.Pairs != 3 || f.A != 3 || f.B != 12 {
		t.Errorf("%+v, want the ratio 2 and its interval from %.4f to %.4f", f, 2/half, 2*half)
	}
}

func TestWhatIsAlikeHasTheRatioOne(t *testing.T) {
	if f := figure("ms", []float64{5, 7, 9}, []float64{5, 7, 9}); f.Ratio != 1 || f.Low != 1 || f.High != 1 {
		t.Errorf("%+v", f)
	}
}

func TestExchangingTheSidesInvertsTheRatio(t *testing.T) {
	a, b := []float64{4, 5, 9, 6}, []float64{5, 5, 7, 8}
	f, g := figure("ms", a, b), figure("ms", b, a)
	if !near(f.Ratio*g.Ratio, 1, 1e-12) || !near(f.Low*g.High, 1, 1e-12) {
		t.Errorf("%+v and %+v", f, g)
	}
}

func TestTooLittleForARatio(t *testing.T) {
	for name, v := range map[string][2][]float64{"no values": {}, "one pair": {{1}, {2}}, "zeros": {{0, 0, 1}, {1, 2, 3}}} {
		if f := figure("exits", v[0], v[1]); f.Ratio != 0 || f.Low != 0 || f.High != 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
