// Package lease ends the sandboxes of an MCP session with the session. Each sandbox gets a short
// time to live, and the holder renews it while the session lives. A clean end kills the sandboxes. If
// the server is killed, the daemon ends them when the time has passed. The package knows sandboxes by
// their IDs only, and calls the daemon through Daemon. The trap: the time to live must be several
// times the delay of a request, or a slow daemon ends sandboxes in use.
package lease

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Daemon has the requests of a Holder.
type Daemon interface {
	// SetTTL makes a sandbox end after ttl from now; 0 removes the end.
	SetTTL(ctx context.Context, id string, ttl time.Duration) error
	// Kill ends a sandbox. It returns nil if the sandbox has already ended.
	Kill(ctx context.Context, id string) error
	// Exists reports whether a sandbox exists, running or paused.
	Exists(ctx context.Context, id string) (bool, error)
}

// Config configures a Holder.
type Config struct {
	Daemon Daemon
	// TTL is the time to live of a sandbox after a renewal, at least 3 s.
	TTL time.Duration
	// MaxLifetime limits the whole life of each sandbox, kept ones included. 0 means no limit.
	MaxLifetime time.Duration
	// Max limits the sandboxes of the session at a time, kept ones included. 0 means no limit.
	Max int
	// Idle ends renewals when the holder was not used for this long. 0 means never.
	Idle time.Duration
	Log  *slog.Logger
}

// TooManyError reports that the session would have more sandboxes than allowed.
type TooManyError struct {
	Max, Have, Asked int
}

func (e TooManyError) Error() string {
	return fmt.Sprintf("%d more sandboxes are asked for, and this session has %d of at most %d", e.Asked, e.Have, e.Max)
}

// leased is one sandbox of the session.
type leased struct {
	end  time.Time // zero: no end beside the session's
	kept bool
}

// Holder has the sandboxes of one session. Its methods are safe for concurrent use.
type Holder struct {
	Config

	mu       sync.Mutex // guards the fields below
	of       map[string]leased
	reserved int // sandboxes in creation
	used     time.Time
	busy     int // calls in progress
	ended    bool
}

// New returns a Holder. Run renews the leases.
func New(c Config) *Holder { return &Holder{Config: c, of: map[string]leased{}, used: time.Now()} }

// Use marks the session as used until done is called.
func (h *Holder) Use() (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy++
	h.used = time.Now()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.busy--
		h.used = time.Now()
	}
}

// Reserve makes room for n more sandboxes. The caller calls done after it has added them. Reserve
// returns a TooManyError if there is no room.
func (h *Holder) Reserve(ctx context.Context, n int) (done func(), err error) {
	if h.reserve(n) != nil {
		h.prune(ctx)
		if err := h.reserve(n); err != nil {
			return nil, err
		}
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.reserved -= n
	}, nil
}

func (h *Holder) reserve(n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	have := len(h.of) + h.reserved
	if h.Max > 0 && have+n > h.Max {
		return TooManyError{h.Max, have, n}
	}
	h.reserved += n
	return nil
}

// prune forgets sandboxes that no longer exist.
func (h *Holder) prune(ctx context.Context) {
	for _, id := range h.IDs() {
		if there, err := h.Daemon.Exists(ctx, id); err == nil && !there {
			h.Forget(id)
		}
	}
}

// Grant is the lifetime of new sandboxes.
type Grant struct {
	TTL  time.Duration // for the daemon; 0 means no end
	end  time.Time
	kept bool
}

// Grant returns the lifetime of sandboxes made now. asked is the lifetime their maker wants, 0 for
// no limit.
func (h *Holder) Grant(asked time.Duration, keep bool) Grant {
	life := asked
	if h.MaxLifetime > 0 && (life == 0 || life > h.MaxLifetime) {
		life = h.MaxLifetime
	}
	g := Grant{TTL: life, kept: keep}
	if life > 0 {
		g.end = time.Now().Add(life)
	}
	if !keep && (life == 0 || life > h.TTL) {
		g.TTL = h.TTL
	}
	return g
}

// Add adds a sandbox made with a grant. It returns false if the session has ended; the caller then
// kills the sandbox, unless it is kept.
func (h *Holder) Add(id string, g Grant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return g.kept
	}
	h.of[id] = leased{g.end, g.kept}
	return true
}

// Keep lets a sandbox outlive the session. It returns the time of its end, which is zero for no end.
func (h *Holder) Keep(ctx context.Context, id string) (time.Time, error) {
	h.mu.Lock()
	l, ok := h.of[id]
	was := l.kept
	l.kept = true
	if ok {
		h.of[id] = l // before the request, so that a renewal does not shorten it again
	}
	h.mu.Unlock()
	if !ok {
		return time.Time{}, fmt.Errorf("sandbox %s is not one of this session's", id)
	}
	if was {
		return l.end, nil
	}
	ttl := time.Duration(0)
	if !l.end.IsZero() {
		ttl = max(time.Second, time.Until(l.end))
	}
	err := h.Daemon.SetTTL(ctx, id, ttl)
	if err != nil {
		h.mu.Lock()
		l.kept = false
		h.of[id] = l
		h.mu.Unlock()
	}
	return l.end, err
}

// Forget removes a sandbox that has ended.
func (h *Holder) Forget(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, id)
}

// State reports whether a sandbox is one of the session, and whether it is kept.
func (h *Holder) State(id string) (mine, kept bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, ok := h.of[id]
	return ok, l.kept
}

// IDs returns the sandboxes of the session, sorted.
func (h *Holder) IDs() []string { return h.ids(func(leased) bool { return true }) }

func (h *Holder) ids(which func(leased) bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for id, l := range h.of {
		if which(l) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
