package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/agentproto"
	"github.com/forkd/forkd/internal/agentproto/forkwire"
	"github.com/forkd/forkd/internal/vmmctl"
)

// What one guest can have of the daemon at agentproto.ForkPort. Its agent serves
// 64 callers; whoever may not fork and is nobody's child is only told so.
const (
	maxGuestCalls    = 80
	maxStrangerCalls = 4
	// guestTimeout bounds the reading of a request and the writing of an answer.
	guestTimeout = 30 * time.Second
	// refusalPause is how long a refusal takes, so that asking again and again
	// costs the guest more than the daemon.
	refusalPause = 20 * time.Millisecond
)

// guestLine is a VM's way to the daemon. It is made before its process is. Who
// the guest is turns out when it calls: a shell is nobody yet.
type guestLine struct {
	proc atomic.Pointer[vmmctl.Process]
}

// guestPort is the dialer of a VM.
func (e *Engine) guestPort(line *guestLine) vmmctl.HostDialer {
	return func(port uint32) (*os.File, error) {
		if port != agentproto.ForkPort {
			return nil, fmt.Errorf("host port %d is closed", port)
		}
		b, leave, err := e.admitCall(line.proc.Load())
		if err != nil {
			return nil, err
		}
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			leave()
			return nil, err
		}
		ours := os.NewFile(uintptr(pair[0]), "guest call")
		conn, err := net.FileConn(ours)
		ours.Close()
		if err != nil {
			unix.Close(pair[1])
			leave()
			return nil, err
		}
		go func() { // admitCall has counted it among the workers
			defer leave()
			e.serveCall(b, conn)
		}()
		return os.NewFile(uintptr(pair[1]), "guest call"), nil
	}
}

// admitCall finds the sandbox and counts the call. Before a clone is listed it
// is refused, and its agent tries again.
func (e *Engine) admitCall(proc *vmmctl.Process) (_ *box, leave func(), _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, nil, ErrClosing
	}
	var b *box
	for _, candidate := range e.boxes {
		if candidate.m != nil && candidate.m.proc == proc {
			b = candidate
		}
	}
	if b == nil || b.killing {
		return nil, nil, errors.New("this guest is no sandbox yet")
	}
	most := maxStrangerCalls
	if b.info.Kin.MayFork || b.info.Kin.Parent != "" {
		most = maxGuestCalls
	}
	if b.calls >= most {
		return nil, nil, fmt.Errorf("%d calls are under way", most)
	}
	b.calls++
	e.workers.Add(1) // not after closing is set, under mu: Close waits later
	return b, func() {
		e.mu.Lock()
		b.calls--
		e.mu.Unlock()
		e.workers.Done()
	}, nil
}

// guestCall is one call of a guest.
type guestCall struct {
	e      *Engine
	b      *box
	conn   net.Conn
	req    forkwire.Request
	result []byte
	// collected is closed when the guest says that it has a child's end; ctx ends
	// when it hangs up, or when the engine closes.
	collected chan struct{}
	ctx       context.Context
}

// serveCall reads a request and answers it. All that comes in is hostile.
func (e *Engine) serveCall(b *box, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(e.background)
	defer cancel()
	defer context.AfterFunc(e.background, func() { conn.Close() })()
	c := &guestCall{e: e, b: b, conn: conn, collected: make(chan struct{}), ctx: ctx}
	r := forkwire.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(guestTimeout))
	var err error
	if c.req, c.result, err = forkwire.ReadRequest(r); err == nil {
		err = c.req.CheckFromAgent()
	}
	if err != nil {
		c.refuse(forkwire.Errorf(forkwire.Invalid, "%v", err))
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

// listen hears the guest's one word, and its leaving.
func (c *guestCall) listen(r *bufio.Reader) {
	if b, err := r.ReadByte(); err != nil || b != forkwire.Collected {
		return
	}
	close(c.collected)
	_, _ = r.ReadByte()
}

// answer may come to nobody, which the error tells.
func (c *guestCall) answer(a forkwire.Answer, result []byte) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(guestTimeout))
	return forkwire.WriteAnswer(c.conn, a, result)
}

func (c *guestCall) refuse(err *forkwire.Error) {
	sleep(c.ctx, refusalPause)
	_ = c.answer(forkwire.Answer{Error: err}, nil)
}

// wait hands out the end of one child.
func (c *guestCall) wait() {
	ctx := c.ctx
	if ms := c.req.TimeoutMS; ms > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer cancel()
	}
	end, err := c.e.familyOf(c.b).Wait(ctx, c.req.IDs)
	var told *forkwire.Error
	switch {
	case errors.As(err, &told):
		c.refuse(told)
		return
	case errors.Is(err, context.DeadlineExceeded):
		_ = c.answer(forkwire.Answer{Error: forkwire.Errorf(forkwire.TimedOut, "no child ended within %d ms", c.req.TimeoutMS)}, nil)
		return
	case err != nil: // the caller has left, or the daemon ends: it will be asked again
		return
	}
	if c.answer(forkwire.Answer{Ended: &end.Ended}, end.Result) == nil && c.confirmed() {
		end.Collected()
		return
	}
	end.Back()
}

func (c *guestCall) confirmed() bool {
	timer := time.NewTimer(guestTimeout)
	defer timer.Stop()
	select {
	case <-c.collected:
		return true
	case <-timer.C:
	case <-c.ctx.Done():
		select { // the word and the end of the connection may come together
		case <-c.collected:
			return true
		default:
		}
	}
	return false
}

// exit keeps what a child leaves behind, and then ends it.
func (c *guestCall) exit() {
	info := c.e.infoOf(c.b)
	if info.Kin.Parent == "" {
		c.refuse(forkwire.Errorf(forkwire.NotAChild, "this sandbox was not made by a fork in a guest: nobody waits for it, and it is not ended"))
		return
	}
	if f := c.e.parentFamily(info); f != nil { // else its parent is gone, as it may be
		if err := f.Ended(info.ID, forkwire.Exited, c.req.Code, "", c.result); err != nil {
			c.refuse(asGuestError(err))
			return
		}
	}
	_ = c.answer(forkwire.Answer{}, nil)
	c.e.cfg.Logger.Info("guest fork: a child has exited", "sandbox", info.ID, "parent", info.Kin.Parent, "code", c.req.Code, "result", len(c.result))
	c.e.killBox(c.b)
}

// asGuestError is what a guest is told of an error.
func asGuestError(err error) *forkwire.Error {
	var told *forkwire.Error
	switch {
	case errors.As(err, &told):
		return told
	case errors.Is(err, ErrBusy):
		return forkwire.Errorf(forkwire.Busy, "%v", err)
	case errors.Is(err, ErrClosing):
		return forkwire.Errorf(forkwire.Unavailable, "%v", err)
	}
	return forkwire.Errorf(forkwire.Failed, "%v", err)
}
