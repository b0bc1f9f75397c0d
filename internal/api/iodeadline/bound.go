package iodeadline

import (
	"sync"
	"time"
)

// bound is the deadline of one direction: the earlier of a handler's deadline and a moving one.
type bound struct {
	set func(time.Time) error

	mu      sync.Mutex // guards the fields below, and is held during set
	handler time.Time  // zero: none
	moving  time.Time  // of the current piece; zero: none
	idle    bool       // the peer may be silent without limit: there is no moving deadline
	over    bool       // the deadline is final
	done    bool       // the handler has returned, and set must not be called
}

// limit sets a handler's deadline. A deadline in the past is final: concurrent reads and writes do
// not replace it.
func (b *bound) limit(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return nil
	}
	b.handler, b.over = t, !t.IsZero() && !t.After(time.Now())
	return b.applyLocked()
}

// lower sets a handler's deadline unless there is an earlier one.
func (b *bound) lower(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over && (b.handler.IsZero() || t.Before(b.handler)) {
		b.handler = t
		_ = b.applyLocked()
	}
}

// move sets the deadline of a piece. Zero means that the piece is done.
func (b *bound) move(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	if b.idle {
		t = time.Time{}
	}
	b.moving = t
	_ = b.applyLocked()
}

// free lets the peer be silent from now on.
func (b *bound) free() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = true
	if !b.over && !b.moving.IsZero() {
		b.moving = time.Time{}
		_ = b.applyLocked()
	}
}

// clear removes all deadlines when no more data comes or the connection was taken over. A final
// deadline stays, and is set again, because net/http clears the deadline of a connection that is
// taken over.
func (b *bound) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return
	}
	if !b.over {
		b.handler, b.moving = time.Time{}, time.Time{}
	}
	_ = b.applyLocked()
}

// finish sets the last deadline. Zero keeps the current one.
func (b *bound) finish(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over && !t.IsZero() {
		b.handler, b.moving = t, time.Time{}
		_ = b.applyLocked()
	}
	b.over, b.done = true, true
}

// hit reports whether a timeout comes from the moving deadline, not from a handler's.
func (b *bound) hit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.over && !b.moving.IsZero() && (b.handler.IsZero() || b.moving.Before(b.handler))
}

func (b *bound) applyLocked() error {
	t := b.handler
	if t.IsZero() || !b.moving.IsZero() && b.moving.Before(t) {
		t = b.moving
	}
	return b.set(t)
}
