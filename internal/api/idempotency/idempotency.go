// Package idempotency makes a repeated request run only once: the second request gets the answer of
// the first. It stores answers in memory for a limited time. They do not survive a restart of the
// daemon.
package idempotency

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"
)

// Errors of Begin.
var (
	ErrKey      = errors.New("want 1 to 255 of a-z, 0-9 and -")
	ErrMismatch = errors.New("the key was used with another request")
	ErrProgress = errors.New("the request with that key is in progress")
	ErrFull     = fmt.Errorf("%d requests with an Idempotency-Key are in progress, and a tenant can have no more", share)
)

// Limits of stored answers.
const (
	lifetime = 24 * time.Hour
	most     = 10_000
	share    = 1000 // of one caller
)

var aKey = regexp.MustCompile(`^[a-z0-9-]{1,255}$`)

// Cache stores answers of one type. The zero value is empty and ready.
type Cache[T any] struct {
	mu      sync.Mutex
	entries map[string]*entry[T]
	held    map[string]int // entries by caller
}

type entry[T any] struct {
	caller string
	body   [sha256.Size]byte
	at     time.Time
	done   bool
	answer T
	ended  chan struct{} // closed at the end of the request
}

// Join is Begin, except that it waits for the end of an earlier request in progress. If that request failed, the caller
// runs its own.
func (c *Cache[T]) Join(ctx context.Context, caller, key string, body []byte,
	now func() time.Time) (*T, func(*T), error) {
	for {
		answer, end, err := c.Begin(caller, key, body, now())
		if !errors.Is(err, ErrProgress) {
			return answer, end, err
		}
		select {
		case <-c.running(caller, key):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// running returns a channel that is closed when no request with that key is in progress.
func (c *Cache[T]) running(caller, key string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[caller+"\x00"+key]; e != nil && !e.done {
		return e.ended
	}
	over := make(chan struct{})
	close(over)
	return over
}

// Begin looks for an earlier request of a caller with that key. If there is none, the caller must
// run the request and call end with the answer. If the request failed and may be repeated, end(nil)
// removes it.
func (c *Cache[T]) Begin(caller, key string, body []byte, now time.Time) (answer *T, end func(*T), err error) {
	if !aKey.MatchString(key) {
		return nil, nil, ErrKey
	}
	full, sum := caller+"\x00"+key, sha256.Sum256(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(now)
	if e := c.entries[full]; e != nil {
		switch {
		case e.body != sum:
			return nil, nil, ErrMismatch
		case !e.done:
			return nil, nil, ErrProgress
		}
		found := e.answer
		return &found, nil, nil
	}
	if c.entries == nil {
		c.entries, c.held = map[string]*entry[T]{}, map[string]int{}
	}
	if !c.makeRoomLocked(caller) {
		return nil, nil, ErrFull
	}
	e := &entry[T]{caller: caller, body: sum, at: now, ended: make(chan struct{})}
	c.entries[full] = e
	c.held[caller]++
	return nil, func(answer *T) { c.end(full, e, answer) }, nil
}

func (c *Cache[T]) end(full string, e *entry[T], answer *T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(e.ended)
	if answer == nil {
		c.dropLocked(full)
		return
	}
	e.done, e.answer = true, *answer
}

// forgetLocked drops expired answers. If there are still too many, it drops the oldest answer of
// the caller with the most, so that callers with few answers keep theirs.
func (c *Cache[T]) forgetLocked(now time.Time) {
	if len(c.entries) < most {
		return
	}
	for key, e := range c.entries {
		if e.done && now.Sub(e.at) > lifetime {
			c.dropLocked(key)
		}
	}
	if len(c.entries) < most {
		return
	}
	largest, found := "", false
	for _, e := range c.entries {
		if e.done && (!found || c.held[e.caller] > c.held[largest]) {
			largest, found = e.caller, true
		}
	}
	c.dropOldestLocked(largest)
}

// makeRoomLocked drops a caller's oldest answer if the caller has used up its share. It returns
// false if all of them are in progress.
func (c *Cache[T]) makeRoomLocked(caller string) bool {
	return c.held[caller] < share || c.dropOldestLocked(caller)
}

// dropOldestLocked drops a caller's oldest answer. It returns false if the caller has none.
func (c *Cache[T]) dropOldestLocked(caller string) bool {
	oldest := ""
	for key, e := range c.entries {
		if e.caller == caller && e.done && (oldest == "" || e.at.Before(c.entries[oldest].at)) {
			oldest = key
		}
	}
	c.dropLocked(oldest)
	return oldest != ""
}

func (c *Cache[T]) dropLocked(full string) {
	e := c.entries[full]
	if e == nil {
		return
	}
	delete(c.entries, full)
	if c.held[e.caller]--; c.held[e.caller] == 0 {
		delete(c.held, e.caller)
	}
}
