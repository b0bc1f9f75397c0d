package measure

import (
	"slices"
	"time"
)

// Quantile returns the nearest rank, or 0 for no values. The values need not be sorted.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Median returns the 0.5 quantile.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Millis returns a duration in milliseconds, with microsecond resolution.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
