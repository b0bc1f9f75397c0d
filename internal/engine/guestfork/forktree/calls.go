package forktree

import "github.com/forkd/forkd/internal/guest/agentproto/forkwire"

const (
	// maxCalls is the number of forks of one sandbox that may be running or waiting for their turn.
	maxCalls = 8
	// keptCalls is the number of finished forks remembered for callers that lost the answer.
	keptCalls = 16
)

// Call is one fork requested by a guest.
type Call struct {
	done   chan struct{} // closed when answer is set
	answer forkwire.Answer
}

// Done returns a channel that is closed when the call has its answer.
func (c *Call) Done() <-chan struct{} { return c.done }

// Answer returns the result of the call, after Done.
func (c *Call) Answer() forkwire.Answer { return c.answer }

// Begin finds the call of a token, or makes it. If it made it, first is true, and the caller must
// carry it out and Finish it.
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

// lostLocked answers for a call requested from an earlier daemon. The children it made are known,
// the rest is lost.
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

// Finish sets the answer of a call.
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
