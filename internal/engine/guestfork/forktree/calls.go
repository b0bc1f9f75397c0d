package forktree

import "github.com/forkd/forkd/internal/guest/agentproto/forkwire"

const (
	// maxCalls is how many forks of one sandbox may be under way or wait for
	// their turn.
	maxCalls = 8
	// keptCalls is how many forks that have ended are remembered, for callers
	// that lost the answer.
	keptCalls = 16
)

// Call is one fork that a guest asked for.
type Call struct {
	done   chan struct{} // closed when answer is there
	answer forkwire.Answer
}

// Done is closed when the call has its answer.
func (c *Call) Done() <-chan struct{} { return c.done }

// Answer is what came of it, after Done.
func (c *Call) Answer() forkwire.Answer { return c.answer }

// Begin finds the call of a token, or makes it: then first is true, and the
// caller must carry it out and Finish it.
func (f *Family) Begin(token string, again bool) (c *Call, first bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.calls[token]; c != nil {
		return c, false, nil
	}
	if again {
		return f.lostLocked(token)
	}
	if len(f.calls)-len(f.finished) >= maxCalls {
		return nil, false, forkwire.Errorf(forkwire.Busy, "%d forks of this sandbox are under way already", maxCalls)
	}
	c = &Call{done: make(chan struct{})}
	f.calls[token] = c
	return c, true, nil
}

// lostLocked answers for a call that an earlier daemon was asked for: whom it
// made is known, the rest is not.
func (f *Family) lostLocked(token string) (*Call, bool, error) {
	var a forkwire.Answer
	for _, k := range f.children {
		if k.token == token {
			a.Children = append(a.Children, forkwire.Child{Index: k.end.Index, ID: k.end.ID})
		}
	}
	if len(a.Children) == 0 {
		return nil, false, forkwire.Errorf(forkwire.Lost, "the daemon was restarted during the call; no child of it is known")
	}
	sortChildren(a.Children)
	c := &Call{done: make(chan struct{}), answer: a}
	close(c.done)
	return c, false, nil
}

// Finish gives a call its answer.
func (f *Family) Finish(token string, a forkwire.Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.calls[token]
	if c == nil {
		return
	}
	c.answer = a
	close(c.done)
	f.finished = append(f.finished, token)
	if len(f.finished) > keptCalls {
		delete(f.calls, f.finished[0])
		f.finished = f.finished[1:]
	}
}
