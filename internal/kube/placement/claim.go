package placement

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind is the reason of a refusal.
type Kind int

const (
	// Full is a lack of memory.
	Full Kind = iota
	// Busy is a temporary limit of the node, for example on requests at the same time.
	Busy
	// Unreachable is a connection that was never made.
	Unreachable
	// Absent is a lack of the snapshot. It says nothing about the node's load.
	Absent
)

// Refusal is an answer without side effects: the node made no sandbox for this request, and will not.
type Refusal struct {
	// Kind is the reason.
	Kind Kind
	// Err is the node's own error.
	Err error
}

func (r *Refusal) Error() string { return r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

// UnknownError reports a request without an answer. The node may have made the sandboxes; the caller asks the same
// node with the same id.
type UnknownError struct {
	// Node and RequestID name the question.
	Node, RequestID string
	// Err is the last error.
	Err error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("node %s sent no answer to request %s: it may have made the sandboxes: %v", e.Node,
		e.RequestID, e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }

// GaveUpError reports refusals by as many nodes as one claim may ask.
type GaveUpError struct {
	// Tries is the number of nodes asked.
	Tries int
	// Err is the last refusal.
	Err error
}

func (e *GaveUpError) Error() string {
	return fmt.Sprintf("%d nodes refused the sandbox; try again later. The last: %v", e.Tries, e.Err)
}

func (e *GaveUpError) Unwrap() error { return e.Err }

// Claim is one request on its way. It is used by one goroutine: Next, a question to the node, Result, and again until
// done.
type Claim struct {
	board   *Board
	req     Request
	tried   []*node
	at      *node
	held    *reservation
	repeats int
	last    error // the last refusal
}

// Claim starts the walk of a request.
func (b *Board) Claim(r Request) *Claim { return &Claim{board: b, req: r} }

// Next returns the node to ask, and promises it the memory. After a time-out it returns the same node again.
func (c *Claim) Next() (string, error) {
	c.board.mu.Lock()
	defer c.board.mu.Unlock()
	if c.at != nil {
		return c.at.facts.Name, nil
	}
	if len(c.tried) >= c.board.cfg.Tries {
		return "", &GaveUpError{Tries: len(c.tried), Err: c.last}
	}
	n := c.board.pickLocked(c.req, c.tried, c.board.cfg.Now())
	if n == nil {
		return "", c.noNodeLocked()
	}
	c.at, c.repeats = n, 0
	c.held = &reservation{snapshot: c.req.Snapshot, count: c.req.count(), memory: n.marginal(c.req),
		opened: c.board.cfg.Now()}
	n.add(c.held)
	return n.facts.Name, nil
}

func (c *Claim) noNodeLocked() error {
	e := &NoNodeError{Reasons: map[string]int{}}
	for _, n := range c.board.nodes {
		if has(c.tried, n) {
			e.Reasons[asked]++
		} else if why := c.board.against(n, c.req, c.board.cfg.Now()); why != "" {
			e.Reasons[why]++
		}
	}
	if c.last != nil {
		return fmt.Errorf("%w. The last refusal: %w", e, c.last)
	}
	return e
}

// Result takes the answer of the node to the last question. It reports whether the claim has ended, and its error.
//
// A nil error is success. A Refusal leads to the next node. An error which Unanswered accepts leads to the same node.
// Any other error is the node's final answer, and the caller's.
func (c *Claim) Result(err error) (done bool, _ error) {
	b := c.board
	b.mu.Lock()
	defer b.mu.Unlock()
	now, n := b.cfg.Now(), c.at
	var refusal *Refusal
	switch {
	case err == nil:
		n.failures, n.shunned = 0, time.Time{}
		c.held.settled = now
		return true, nil
	case errors.As(err, &refusal) && c.repeats > 0 && refusal.Kind == Unreachable:
		// The connection failed this time. The question before may have arrived.
		return c.unansweredLocked(err, now)
	case errors.As(err, &refusal):
		c.refusedLocked(refusal, now)
		return false, nil
	case Unanswered(err):
		return c.unansweredLocked(err, now)
	default:
		n.release(c.held)
		c.at = nil
		return true, err
	}
}

// Unanswered reports whether the error leaves the outcome open.
func Unanswered(err error) bool {
	var unknown *UnknownError
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &unknown)
}

func (c *Claim) refusedLocked(r *Refusal, now time.Time) {
	n := c.at
	n.release(c.held)
	if r.Kind != Absent {
		n.failures++
	}
	switch r.Kind {
	case Full:
		if n.full == 0 || c.held.memory < n.full {
			n.full = max(c.held.memory, 1)
		}
		n.fullAt = now
	case Busy:
		n.shunned = now.Add(pause(50*time.Millisecond, n.failures))
	case Unreachable:
		n.shunned = now.Add(pause(time.Second, n.failures))
	}
	c.tried, c.at, c.last = append(c.tried, n), nil, r
}

// unansweredLocked keeps the memory promised: the node may use it any time until it gives up.
func (c *Claim) unansweredLocked(err error, now time.Time) (bool, error) {
	c.repeats++
	c.at.failures++
	c.at.shunned = now.Add(pause(time.Second, c.at.failures))
	if c.repeats <= c.board.cfg.Repeats {
		return false, nil
	}
	c.held.settled = now.Add(c.board.cfg.Linger)
	return true, &UnknownError{Node: c.at.facts.Name, RequestID: c.req.ID, Err: err}
}

// Ask sends a request, with its id, to one node. Claim.Result explains its errors.
type Ask func(ctx context.Context, node string) error

// Place walks a claim to its end. It returns the node which accepted. If the caller's context ends, the
// outcome of the question under way is unknown.
func (b *Board) Place(ctx context.Context, r Request, ask Ask) (string, error) {
	c := b.Claim(r)
	for {
		node, err := c.Next()
		if err != nil {
			return "", err
		}
		err = ask(ctx, node)
		if gone := ctx.Err(); gone != nil && err != nil {
			return "", c.abandon(err)
		}
		if done, err := c.Result(err); done {
			return node, err
		}
	}
}

// abandon ends a claim without another question.
func (c *Claim) abandon(err error) error {
	var refusal *Refusal
	if c.repeats == 0 && errors.As(err, &refusal) {
		_, _ = c.Result(err)
		return err
	}
	b := c.board
	b.mu.Lock()
	defer b.mu.Unlock()
	c.held.settled = b.cfg.Now().Add(b.cfg.Linger)
	return &UnknownError{Node: c.at.facts.Name, RequestID: c.req.ID, Err: err}
}
