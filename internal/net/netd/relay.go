package netd

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
)

const (
	// lingerLimit limits the wait for a silent far end after the guest has closed.
	lingerLimit = time.Minute
)

// relay is a TCP flow with bytes that pass through forkd-net. The kernel splices them unless the VM
// has a bandwidth limit.
type relay struct {
	near    *net.UnixConn
	told    atomic.Bool             // the VMM got the reason for its end
	tell    func(kind netwire.Kind) // sends the reason
	spliced atomic.Int32            // number of directions spliced by the kernel
	// in and out are the copied bytes, once copying has ended. Until then the kernel counts.
	in, out atomic.Pointer[int64]

	mu     sync.Mutex
	far    *net.TCPConn // nil until it is dialed
	closed bool
}

func (r *relay) live() *live {
	return &live{sever: r.sever, close: r.close, counts: r.counts, unpaced: func() bool { return r.spliced.Load() > 0 }}
}

// setFar sets far. It returns false if the relay is already closed; far is then closed, too.
func (r *relay) setFar(far *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		far.Close()
		return false
	}
	r.far = far
	return true
}

// say sends the VMM once the reason for the end. It does not wait for the VMM.
func (r *relay) say(kind netwire.Kind) {
	if !r.told.Swap(true) {
		go r.tell(kind)
	}
}

// close closes both ends. If hard, it resets them.
func (r *relay) close(hard bool) {
	r.say(endKind(hard)) // does nothing after an earlier reason
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.far != nil {
		if hard {
			r.far.SetLinger(0)
		}
		r.far.Close()
	}
	r.near.Close()
}

// sever resets the far end and ends the VMM's end.
func (r *relay) sever() {
	in, out := r.counts()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.say(netwire.Broken)
	r.in.Store(&in)
	r.out.Store(&out)
	if r.far != nil {
		if raw, err := r.far.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { disconnect(int(fd)) })
		}
	}
	if raw, err := r.near.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
}

func (r *relay) counts() (in, out int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.far == nil || r.closed {
		return 0, 0
	}
	if raw, err := r.far.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { in, out = bytesOf(int(fd)) })
	}
	if n := r.in.Load(); n != nil {
		in = *n
	}
	if n := r.out.Load(); n != nil {
		out = *n
	}
	return in, out
}

// relayPlain relays a connected socket without inspection.
func (f *flow) relayPlain(fd int) {
	near := f.nearEnd(netwire.StreamFDs)
	if near == nil {
		unix.Close(fd)
		return
	}
	far, err := tcpConn(fd)
	if err != nil {
		near.Close()
		f.finish(true, control.Cut, "it cannot be relayed: "+err.Error())
		f.tellEnd(netwire.Broken)
		return
	}
	r := &relay{near: near, far: far, tell: f.tellEnd}
	if !f.begin(r.live(), true) {
		return
	}
	f.pass(r, 0)
}

// pass relays bytes in both directions until both have ended or one is broken. head is the number
// of the guest's bytes already passed on.
func (f *flow) pass(r *relay, head int) {
	forget := f.watchGuest(r)
	back := make(chan error, 1)
	go func() { // ends with the relay, which end below closes at the latest
		n, err := f.v.copy(f.ctx, r, r.near, r.far, false)
		r.in.Store(&n)
		if err != nil {
			f.end(true)
		} else {
			r.say(netwire.Finished)
		}
		r.near.CloseWrite()
		back <- err
	}()
	n, err := f.v.copy(f.ctx, r, r.far, r.near, true)
	n += int64(head)
	r.out.Store(&n)
	if err != nil {
		f.end(true)
	}
	r.far.CloseWrite()
	<-back
	forget()
	f.end(false)
}

// endKind returns the message to a VMM about an end.
func endKind(hard bool) netwire.Kind {
	if hard {
		return netwire.Broken
	}
	return netwire.Finished
}

// tellEnd sends the VMM the reason for the end of its stream. It ignores errors: without a wire,
// the VMM has no stream.
func (f *flow) tellEnd(kind netwire.Kind) {
	_ = f.v.wire.Send(netwire.Message{Kind: kind, ID: f.id})
}

// watchGuest detects that the guest has closed its socket, not only its sending direction. The far
// end then has a limited time to send bytes that the guest does not read.
func (f *flow) watchGuest(r *relay) (forget func()) {
	raw, err := r.near.SyscallConn()
	if err != nil {
		return func() {}
	}
	token := uint64(0)
	raw.Control(func(fd uintptr) {
		token, _ = f.v.s.hangups.add(int(fd), func() {
			r.far.SetReadDeadline(time.Now().Add(lingerLimit))
		})
	})
	return func() {
		raw.Control(func(fd uintptr) { f.v.s.hangups.remove(int(fd), token) })
		f.v.s.hangups.forget(token) // in case it is already closed
	}
}

// copy lets the kernel splice, unless there is a bandwidth limit.
func (v *vm) copy(ctx context.Context, r *relay, dst io.Writer, src io.Reader, out bool) (int64, error) {
	r.spliced.Add(1) // before reading the limit: update sets the limit first and then reads this
	m := v.meters(out)
	if m.none() {
		return io.Copy(dst, src)
	}
	r.spliced.Add(-1)
	return v.copySlowly(ctx, dst, src, out, m.chunk())
}

// meters returns the meters for one direction.
func (v *vm) meters(out bool) (m meters) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m.own = v.in; out {
		m.own = v.out
	}
	if v.tree == nil {
		return m
	}
	if m.tree = v.tree.in; out {
		m.tree = v.tree.out
	}
	return m
}

// copySlowly copies within the VM's current bandwidth limit.
func (v *vm) copySlowly(ctx context.Context, dst io.Writer, src io.Reader, out bool, chunk int) (all int64, err error) {
	buf := make([]byte, chunk)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if err := v.pace(ctx, n, out); err != nil {
				return all, err
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return all, err
			}
			all += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// pace waits until n bytes of a stream may pass.
func (v *vm) pace(ctx context.Context, n int, out bool) error {
	return wait(ctx, v.meters(out).stream(time.Now(), n))
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return unix.ECANCELED
	}
}
