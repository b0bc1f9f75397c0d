package forkcall

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/generation"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

var (
	errCallerLeft = errors.New("the caller has left")
	errCloned     = errors.New("this guest is a clone")
)

// call is a call in progress.
type call struct {
	s         *Server
	req       forkwire.Request
	result    []byte          // of an exit
	ctx       context.Context // carries the mark; ends if the caller leaves, or when the clone's identity is known
	cancel    context.CancelCauseFunc
	became    chan forkwire.Answer // buffered, for the answer from an identity
	collected chan struct{}        // closed when the caller confirms receipt
}

func (s *Server) begin(ctx context.Context, req forkwire.Request, result []byte) *call {
	c := &call{s: s, req: req, result: result, became: make(chan forkwire.Answer, 1), collected: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(s.cfg.Guest.Mark(ctx))
	s.mu.Lock()
	s.calls[c] = struct{}{}
	s.mu.Unlock()
	return c
}

func (s *Server) end(c *call) {
	s.mu.Lock()
	delete(s.calls, c)
	s.mu.Unlock()
	c.cancel(nil)
}

// Identity is the new identity of the guest.
type Identity struct {
	Token  string // of the call that made this clone; empty if the source's guest did not fork it
	Index  uint32 // result of the call in the clone, from 1
	ID     string // sandbox id of the clone
	Parent string // tag of the snapshot it was forked from
}

// Became ends the calls that were in progress in the source, once the clone has its full identity.
// The call that made this clone gets its index. Other calls get an error, because their requests
// belong to the source.
func (s *Server) Became(id Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.calls {
		if !generation.Moved(c.ctx) {
			continue // the clone's own: it began after the fork
		}
		delete(s.calls, c)
		c.became <- c.inClone(id)
		c.cancel(errCloned)
	}
}

func (c *call) inClone(id Identity) forkwire.Answer {
	switch {
	case c.req.Op == forkwire.OpFork && id.Token != "" && id.Token == c.req.Token:
		return forkwire.Answer{Index: int(id.Index), ID: id.ID, Parent: id.Parent}
	case c.req.Op == forkwire.OpWait:
		return forkwire.Answer{Error: forkwire.Errorf(forkwire.NoChildren,
			"this machine is a clone of the one that waited: the children are not its own")}
	}
	return forkwire.Answer{Error: forkwire.Errorf(forkwire.Interrupted,
		"this machine was forked from one in which the call was under way: the call was that machine's, and nothing was "+
			"done for this one")}
}

// carry gets the answer from the host, or in a clone from the identity. If confirm is not nil, it
// must be called with whether the caller has received the answer.
func (c *call) carry() (a forkwire.Answer, result []byte, confirm func(bool)) {
	wait := 50 * time.Millisecond
	var lost time.Time // when the host stopped answering
	for {
		a, result, confirm, err := c.ask()
		if err == nil {
			return a, result, confirm
		}
		if generation.Moved(c.ctx) {
			return c.awaitIdentity(), nil, nil
		}
		if c.ctx.Err() != nil {
			return forkwire.Answer{Error: forkwire.Errorf(forkwire.Interrupted, "%v", context.Cause(c.ctx))}, nil, nil
		}
		if lost.IsZero() {
			lost = time.Now()
		} else if time.Since(lost) > c.s.cfg.Patience {
			return forkwire.Answer{Error: c.gaveUp(err)}, nil, nil
		}
		select {
		case <-time.After(wait):
		case <-c.ctx.Done():
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// gaveUp returns an error that reports whether the call may have had an effect.
func (c *call) gaveUp(err error) *forkwire.Error {
	if c.req.Again {
		return forkwire.Errorf(forkwire.Lost, "the host does not say what became of the call: %v", err)
	}
	return forkwire.Errorf(forkwire.Unavailable, "the host does not answer; nothing was done: %v", err)
}

// awaitIdentity waits for the identity in a clone. A clone without an identity is ended.
func (c *call) awaitIdentity() forkwire.Answer {
	select {
	case a := <-c.became:
		return a
	case <-c.ctx.Done():
	}
	select { // an identity delivers its answer before it ends the context
	case a := <-c.became:
		return a
	default:
		return forkwire.Answer{Error: forkwire.Errorf(forkwire.Interrupted, "%v", context.Cause(c.ctx))}
	}
}

// ask sends the request once and waits for the host's answer.
func (c *call) ask() (_ forkwire.Answer, _ []byte, confirm func(bool), err error) {
	conn, err := c.s.cfg.Dial(c.ctx)
	if err != nil {
		return forkwire.Answer{}, nil, nil, err
	}
	stop := context.AfterFunc(c.ctx, func() { conn.Close() })
	done := func() { stop(); conn.Close() }
	defer func() {
		if confirm == nil {
			done()
		}
	}()
	_ = conn.SetWriteDeadline(time.Now().Add(requestTimeout))
	if err := forkwire.WriteRequest(conn, c.req, c.result); err != nil {
		return forkwire.Answer{}, nil, nil, err
	}
	if c.req.Op == forkwire.OpFork {
		c.req.Again = true
	}
	a, result, err := forkwire.ReadAnswer(forkwire.NewReader(conn))
	if err != nil {
		return forkwire.Answer{}, nil, nil, err
	}
	if a.Ended == nil {
		return a, result, nil, nil
	}
	return a, result, func(has bool) {
		if has {
			sayCollected(conn)
		}
		done()
	}, nil
}

// sayCollected allows the host to forget a child's end. If the message is lost, the host offers
// that end again, which is better than never.
func sayCollected(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(requestTimeout))
	if _, err := conn.Write([]byte{forkwire.Collected}); err != nil {
		return
	}
	_, _ = conn.Read(make([]byte, 1)) // waits until the host has received it and closes
}
