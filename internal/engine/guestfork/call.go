package guestfork

import (
	"bufio"
	"context"
	"errors"
	"net"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// call is one call of a guest.
type call struct {
	f      *Families
	b      *sandboxes.Sandbox
	line   *line
	conn   net.Conn
	req    forkwire.Request
	result []byte
	leave  func() // releases the space for the result
	// collected is closed when the guest confirms that it has a child's end. ctx ends when it hangs
	// up, or when the daemon closes.
	collected chan struct{}
	ctx       context.Context
}

// serve reads a request and answers it. All input is hostile.
func (f *Families) serve(b *sandboxes.Sandbox, l *line, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(f.cfg.Closing)
	defer cancel()
	defer context.AfterFunc(f.cfg.Closing, func() { conn.Close() })()
	c := &call{f: f, b: b, line: l, conn: conn, leave: func() {}, collected: make(chan struct{}), ctx: ctx}
	defer func() { c.leave() }()
	r := forkwire.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(f.cfg.Patience)) // for the whole request, however slowly it arrives
	if err := c.read(r); err != nil {
		c.refuse(err)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		defer cancel()
		c.listen(r)
	}()
	switch c.req.Op {
	case forkwire.OpFork:
		c.fork()
	case forkwire.OpWait:
		c.wait()
	case forkwire.OpExit:
		c.exit()
	}
	conn.Close() // ends the listening
	<-listening
}

// read reads the request. It accepts a result only from a caller that may leave one.
func (c *call) read(r *bufio.Reader) *forkwire.Error {
	var err error
	if c.req, err = forkwire.ReadHead(r); err == nil {
		err = c.req.CheckFromAgent()
	}
	if err != nil {
		return forkwire.Errorf(forkwire.Invalid, "%v", err)
	}
	if c.req.Op == forkwire.OpExit && c.b.Info().Kin.Parent == "" {
		return forkwire.Errorf(forkwire.NotAChild,
			"this sandbox was not made by a fork in a guest: it has no waiting parent, and keeps running")
	}
	leave, told := c.line.reserveResult(c.req)
	if told != nil {
		return told
	}
	c.leave = leave
	if c.result, err = forkwire.ReadResult(r, c.req); err != nil {
		return forkwire.Errorf(forkwire.Invalid, "%v", err)
	}
	return nil
}

// listen waits for the guest's acknowledgement, and notices if the guest disconnects.
func (c *call) listen(r *bufio.Reader) {
	if b, err := r.ReadByte(); err != nil || b != forkwire.Collected {
		return
	}
	close(c.collected)
	_, _ = r.ReadByte()
}

// answer sends an answer. It returns an error if the guest has disconnected.
func (c *call) answer(a forkwire.Answer, result []byte) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(callTimeout))
	return forkwire.WriteAnswer(c.conn, a, result)
}

func (c *call) refuse(err *forkwire.Error) {
	ctxsleep.For(c.ctx, refusalPause)
	_ = c.answer(forkwire.Answer{Error: err}, nil)
}

// wait returns the end of one child to the guest.
func (c *call) wait() {
	ctx := c.ctx
	if ms := c.req.TimeoutMS; ms > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer cancel()
	}
	end, err := c.f.familyOf(c.b.ID()).Wait(ctx, c.req.IDs)
	var told *forkwire.Error
	switch {
	case errors.As(err, &told):
		c.refuse(told)
		return
	case errors.Is(err, context.DeadlineExceeded):
		late := forkwire.Errorf(forkwire.TimedOut, "no child ended within %d ms", c.req.TimeoutMS)
		_ = c.answer(forkwire.Answer{Error: late}, nil)
		return
	case err != nil: // the caller has left, or the daemon ends: it will ask again
		return
	}
	if c.answer(forkwire.Answer{Ended: &end.Ended}, end.Result) == nil && c.confirmed() {
		end.Collected()
		return
	}
	end.Back()
}

func (c *call) confirmed() bool {
	timer := time.NewTimer(callTimeout)
	defer timer.Stop()
	select {
	case <-c.collected:
		return true
	case <-timer.C:
	case <-c.ctx.Done():
		select { // the confirmation and the end of the connection may arrive together
		case <-c.collected:
			return true
		default:
		}
	}
	return false
}

// exit saves a child's result, and then ends the child.
func (c *call) exit() {
	info := c.b.Info()
	if fam := c.f.parentFamily(info); fam != nil { // otherwise its parent is gone, which is allowed
		if err := fam.Ended(info.ID, forkwire.Exited, c.req.Code, "", c.result); err != nil {
			c.refuse(asTold(err))
			return
		}
	}
	_ = c.answer(forkwire.Answer{}, nil)
	c.f.cfg.Log.Info("guest fork: a child has exited", "sandbox", info.ID, "parent", info.Kin.Parent,
		"code", c.req.Code, "result", len(c.result))
	began := time.Now()
	c.f.cfg.Sandboxes.End(c.b)
	c.f.cfg.Acts(sandbox.Act{Action: sandbox.ActExit, By: sandbox.ByGuest, Of: info, Took: time.Since(began)})
}

// asTold converts an error for the guest.
func asTold(err error) *forkwire.Error {
	var told *forkwire.Error
	switch {
	case errors.As(err, &told):
		return told
	case errors.Is(err, sandbox.ErrQuota):
		return forkwire.Errorf(forkwire.Limit, "%v", err)
	case errors.Is(err, sandbox.ErrForbidden):
		return forkwire.Errorf(forkwire.Denied, "%v", err)
	case errors.Is(err, sandbox.ErrBusy):
		return forkwire.Errorf(forkwire.Busy, "%v", err)
	case errors.Is(err, sandbox.ErrClosing):
		return forkwire.Errorf(forkwire.Unavailable, "%v", err)
	}
	return forkwire.Errorf(forkwire.Failed, "%v", err)
}
