package keys

import (
	"context"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
)

// checkEvery is the interval of expiry checks. Each check reads the clock, so a clock jump or a suspended host
// delays an expiry by no more than this.
const checkEvery = 250 * time.Millisecond

// sessions holds one context for each key text in use.
type sessions struct {
	mu    sync.Mutex // guards the fields below
	open  map[digest]*session
	timer *time.Timer // runs while open has entries
}

// session is the context of one key text. users counts the contexts bound to it.
type session struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	users int
}

// Bind returns a context that also ends, with the cause principal.ErrKeyEnded, when text is no longer valid. It holds no
// resources after ctx has ended.
func (s *Store) Bind(ctx context.Context, text string) context.Context {
	d := digestOf(text)
	key := s.sessions.join(d, s.opens)
	bound, end := context.WithCancelCause(ctx)
	detach := context.AfterFunc(key, func() { end(principal.ErrKeyEnded) })
	context.AfterFunc(ctx, func() {
		detach()
		end(context.Cause(ctx))
		s.sessions.leave(d)
	})
	if !s.opens(d) { // revoked between Find and join
		end(principal.ErrKeyEnded)
	}
	return bound
}

// opens reports whether a valid key's text has this digest.
func (s *Store) opens(d digest) bool {
	e, now := s.table.Load().byDigest[d], s.cfg.Now()
	if e == nil || e.Dead(now) != "" {
		return false
	}
	return e.digest == d || now.Before(e.oldUntil)
}

func (s *sessions) join(d digest, opens func(digest) bool) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[digest]*session{}
	}
	if s.open[d] == nil {
		ctx, end := context.WithCancelCause(context.Background())
		s.open[d] = &session{ctx: ctx, end: end}
	}
	s.open[d].users++
	if s.timer == nil {
		s.timer = time.AfterFunc(checkEvery, func() { s.tick(opens) })
	}
	return s.open[d].ctx
}

func (s *sessions) leave(d digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[d].users--; s.open[d].users > 0 {
		return
	}
	s.open[d].end(nil)
	delete(s.open, d)
	if len(s.open) == 0 {
		s.timer.Stop()
		s.timer = nil
	}
}

// tick checks all sessions and restarts the timer.
func (s *sessions) tick(opens func(digest) bool) {
	s.check(opens)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Reset(checkEvery)
	}
}

// check ends the sessions of keys that are no longer valid.
func (s *sessions) check(opens func(digest) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, open := range s.open {
		if !opens(d) {
			open.end(principal.ErrKeyEnded)
		}
	}
}

// Bound returns the number of contexts bound to keys.
func (s *Store) Bound() (n int) {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	for _, open := range s.sessions.open {
		n += open.users
	}
	return n
}
