package measure

import (
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	v := []float64{9, 1, 2, 3}
	if Median(v) != 3 || Quantile(v, 0.99) != 9 || Quantile(v, 0) != 1 || v[0] != 9 {
		t.Errorf("%v %v %v %v", Median(v), Quantile(v, 0.99), Quantile(v, 0), v)
	}
	if Median(nil) != 0 || Median([]float64{7}) != 7 {
		t.Error("of nothing, of one")
	}
	if got := Millis(1234567 * time.Nanosecond); got != 1.234 {
		t.Error(got)
	}
}
