package wire

import "time"

// Milliseconds keeps the microseconds as decimals.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Seconds converts a limit of a request. Validation limits it to a day.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Optional returns nil for a zero value.
func Optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// NotNil returns an empty list for nil, because a JSON list must be [], not null.
func NotNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// Text converts an output. It leaves invalid bytes to the JSON encoder, which replaces them.
func Text(b []byte) string { return string(b) }

// List converts a list. It never returns nil.
func List[A, B any](in []A, convert func(A) B) []B {
	out := make([]B, 0, len(in))
	for _, v := range in {
		out = append(out, convert(v))
	}
	return out
}

// FromMicroseconds converts microseconds to milliseconds.
func FromMicroseconds(us int64) float64 { return float64(us) / 1000 }
