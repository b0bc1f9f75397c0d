package agent

import "testing"

func TestPeakOfAStatus(t *testing.T) {
	for text, want := range map[string]int64{
		"":                             0,
		"Name:\tx\nVmHWM:\t   1024 kB": 1 << 20,
		"Name:\tx\nVmHWM:\t   1024 kB\nVmRSS:\t 12 kB\n": 1 << 20,
		"VmHWM:\t 12 kB":                    0, // it is never first
		"Name:\tx\nVmRSS:\t 12 kB\n":        0,
		"\nVmHWM:\t99999999999999999999 kB": 0,
		"\nVmHWM:\t-3 kB":                   0,
		"\nVmHWM:":                          0,
	} {
		if got := peakOf([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
