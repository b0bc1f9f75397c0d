package measure

import (
	"slices"
	"time"
)

// Quantile is the nearest rank; 0 for no values. The values need no order.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Median is the quantile in the middle.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Millis is a duration in milliseconds, to the microsecond.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
