package iodeadline

import (
	"sync"
	"time"
)

// bound is the deadline of one direction: the earlier one of a handler's and of one that moves.
type bound struct {
	set func(time.Time) error

	mu      sync.Mutex // guards what follows, and is held during set
	handler time.Time  // zero: none
	moving  time.Time  // of the piece under way; zero: none
	idle    bool       // the peer may be silent for as long as it likes: none moves
	over    bool       // the deadline stays
	done    bool       // the handler has returned, and set must not be called
}

// limit sets a handler's deadline. One of the past is the last: whoever reads or writes at that moment does not take
// it back.
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

// move sets the deadline of a piece; zero: it is done.
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

// clear drops all deadlines, where nothing more is to come or the connection was taken over. The last stays, and is
// set again: net/http takes it off a connection that is taken over.
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

// finish sets the last deadline; zero: it stays as it is.
func (b *bound) finish(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over && !t.IsZero() {
		b.handler, b.moving = t, time.Time{}
		_ = b.applyLocked()
	}
	b.over, b.done = true, true
}

// hit reports whether a timeout is the moving deadline's, and no handler's.
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
