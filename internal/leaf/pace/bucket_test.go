package pace

import (
	"testing"
	"time"
)

func TestTakeWaitsForItsToken(t *testing.T) {
	b, now := New(10, 3), time.Unix(1000, 0)
	for i, want := range []time.Duration{0, 0, 0, 100 * time.Millisecond, 200 * time.Millisecond} {
		if got := b.Take(now); got.Round(time.Millisecond) != want {
			t.Errorf("token %d: wait %s, want %s", i, got, want)
		}
	}
	if got := b.Take(now.Add(time.Second)); got != 0 { // ten were added, two were owed
		t.Errorf("after a second: wait %s", got)
	}
}

func TestTryRefusesWhatIsNotThere(t *testing.T) {
	b, now := New(10, 2), time.Unix(1000, 0)
	tries := func(now time.Time) (n int) {
		for range 5 {
			if b.Try(now) {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 2}, {0, 0}, {100 * time.Millisecond, 1}, {time.Hour, 2}, {-2 * time.Hour, 0}, {time.Second, 2}} {
		now = now.Add(c.after)
		if got := tries(now); got != c.want {
			t.Errorf("after %s: %d of 5, want %d", c.after, got, c.want)
		}
	}
}
