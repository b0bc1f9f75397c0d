// Package pace bounds how often something is done: a token bucket. It keeps no
// time of its own and starts nothing; its caller asks and then waits or refuses.
// The daemon's sides that guests can reach use it. The trap: a Bucket that was
// overdrawn by Take stays so until the time for it has passed.
package pace

import (
	"sync"
	"time"
)

// Bucket is a token bucket. It is safe for concurrent use.
type Bucket struct {
	rate  float64 // tokens in a second
	burst float64

	mu     sync.Mutex // guards what follows
	tokens float64    // less than none: overdrawn
	last   time.Time  // when tokens was right
}

// New makes a full bucket.
func New(rate, burst int) *Bucket {
	return &Bucket{rate: float64(rate), burst: float64(burst), tokens: float64(burst)}
}

// Take takes a token that may be still to come, and returns how long to wait for it.
func (b *Bucket) Take(now time.Time) time.Duration { return b.TakeN(now, 1) }

// TakeN takes n tokens that may be still to come, and returns how long to wait for the last.
func (b *Bucket) TakeN(now time.Time, n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fillLocked(now)
	if b.tokens -= float64(n); b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / b.rate * float64(time.Second))
}

// Try takes a token if there is one.
func (b *Bucket) Try(now time.Time) bool { return b.TryN(now, 1) }

// TryN takes n tokens if there are so many.
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
	if !b.last.IsZero() && now.After(b.last) { // a clock that was set back gives none
		b.tokens = min(b.burst, b.tokens+now.Sub(b.last).Seconds()*b.rate)
	}
	b.last = now
}
