// Package pace implements a token bucket to limit the rate of an operation. It has no clock and starts no
// goroutine: the caller passes the time, and waits or refuses. The parts of the daemon that guests can reach use
// it. Beware: a Bucket overdrawn by Take stays overdrawn until enough time has passed.
package pace

import (
	"sync"
	"time"
)

// Bucket is a token bucket. It is safe for concurrent use.
type Bucket struct {
	rate  float64 // tokens per second
	burst float64

	mu     sync.Mutex // guards the fields below
	tokens float64    // negative when overdrawn
	last   time.Time  // time of the value in tokens
}

// New returns a full bucket.
func New(rate, burst int) *Bucket {
	return &Bucket{rate: float64(rate), burst: float64(burst), tokens: float64(burst)}
}

// Take takes a token, even if it is not available yet, and returns how long to wait for it.
func (b *Bucket) Take(now time.Time) time.Duration { return b.TakeN(now, 1) }

// TakeN takes n tokens, even if they are not available yet, and returns how long to wait for the last one.
func (b *Bucket) TakeN(now time.Time, n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fillLocked(now)
	if b.tokens -= float64(n); b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / b.rate * float64(time.Second))
}

// Try takes a token if one is available.
func (b *Bucket) Try(now time.Time) bool { return b.TryN(now, 1) }

// TryN takes n tokens if they are available.
func (b *Bucket) TryN(now time.Time, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fillLocked(now)
	if b.tokens < float64(n) {
		return false
	}
	b.tokens -= float64(n)
	return true
}

func (b *Bucket) fillLocked(now time.Time) {
	if !b.last.IsZero() && now.After(b.last) { // a clock that was set back adds no tokens
		b.tokens = min(b.burst, b.tokens+now.Sub(b.last).Seconds()*b.rate)
	}
	b.last = now
}
