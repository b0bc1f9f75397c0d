package compare

import (
	"math"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// Value is a figure of one lap.
type Value struct {
	Name string
	V    float64
}

// Figure is one figure of both sides (docs/inside/formats/json-output.md).
type Figure struct {
	Name string  `json:"name"`
	A    float64 `json:"a"` // median over the rounds
	B    float64 `json:"b"`
	// Ratio is the geometric mean of B to A over the pairs. Low and High are its 95 % interval. All
	// are 0 if fewer than two pairs have positive values.
	Ratio float64 `json:"ratio,omitempty"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	Pairs int     `json:"pairs"`
}

// figure compares the values of one name, in the order of the rounds.
func figure(name string, a, b []float64) Figure {
	f := Figure{Name: name, A: measure.Median(a), B: measure.Median(b)}
	var logs []float64
	for i := range min(len(a), len(b)) {
		if a[i] > 0 && b[i] > 0 {
			logs = append(logs, math.Log(b[i]/a[i]))
		}
	}
	if f.Pairs = len(logs); f.Pairs < 2 {
		return f
	}
	mean, half := meanAndHalf(logs)
	f.Ratio, f.Low, f.High = math.Exp(mean), math.Exp(mean-half), math.Exp(mean+half)
	return f
}

// meanAndHalf returns the mean and half the width of its 95 % interval by Student's t.
func meanAndHalf(values []float64) (mean, half float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	var squares float64
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return mean, studentT(len(values)-1) * math.Sqrt(squares/(n-1)/n)
}

// quantiles975 holds the quantiles of Student's t for 1 to 10 degrees of freedom, where the series
// below is too inexact.
var quantiles975 = [...]float64{12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281}

// studentT returns the 97.5 % quantile of Student's t.
func studentT(freedom int) float64 {
	if freedom <= len(quantiles975) {
		return quantiles975[freedom-1]
	}
	// Abramowitz and Stegun 26.7.5, from the quantile of the normal distribution.
	const z = 1.959964
	v := float64(freedom)
	z3, z5, z7 := z*z*z, z*z*z*z*z, z*z*z*z*z*z*z
	return z + (z3+z)/(4*v) + (5*z5+16*z3+3*z)/(96*v*v) + (3*z7+19*z5+17*z3-15*z)/(384*v*v*v)
}
