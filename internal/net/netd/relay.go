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
	// lingerLimit is for a far end that says no more, to a guest that has closed.
	lingerLimit = time.Minute
)

// relay is a TCP flow whose bytes pass through forkd-net, spliced by the kernel
// unless its VM has a bandwidth limit.
type relay struct {
	near    *net.UnixConn
	told    atomic.Bool             // the VMM knows how its end came about
	tell    func(kind netwire.Kind) // tells it
	spliced atomic.Int32            // ways that the kernel splices
	// in and out are what was copied, once that has ended; what is under way the kernel counts.
	in, out atomic.Pointer[int64]

	mu     sync.Mutex
	far    *net.TCPConn // nil until it is dialed
	closed bool
}

func (r *relay) live() *live {
	return &live{sever: r.sever, close: r.close, counts: r.counts, unpaced: func() bool { return r.spliced.Load() > 0 }}
}

// setFar is false when the relay is closed already; then far is, too.
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

// say tells the VMM once how its end has come about. It does not wait: the VMM does.
func (r *relay) say(kind netwire.Kind) {
	if !r.told.Swap(true) {
		go r.tell(kind)
	}
}

// close ends both ends. Hard resets them.
func (r *relay) close(hard bool) {
	r.say(endKind(hard)) // unless it has been told already
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

// sever resets the far end, and ends the VMM's.
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

// relayPlain relays a connected socket that nothing is to be read from.
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

// pass passes bytes on both ways until both have ended, or one is broken. So
// many bytes of the guest's have been passed on before.
func (f *flow) pass(r *relay, head int) {
	forget := f.watchGuest(r)
	back := make(chan error, 1)
	go func() { // it ends with the relay, which end below closes at the latest
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

// endKind is what a VMM is told of an end.
func endKind(hard bool) netwire.Kind {
	if hard {
		return netwire.Broken
	}
	return netwire.Finished
}

// tellEnd tells the VMM how its stream has ended. A VMM that does not listen has no stream.
func (f *flow) tellEnd(kind netwire.Kind) {
	_ = f.v.wire.Send(netwire.Message{Kind: kind, ID: f.id})
}

// watchGuest sees that the guest has closed, not only sent its last byte: then
// the far end has a limited time to say what nobody reads.
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
		f.v.s.hangups.forget(token) // when it is closed already
	}
}

// copy has the kernel splice, unless there is a bandwidth limit.
func (v *vm) copy(ctx context.Context, r *relay, dst io.Writer, src io.Reader, out bool) (int64, error) {
	r.spliced.Add(1) // before the limit is looked at: who sets one looks at this after it
	m := v.meters(out)
	if m.none() {
		return io.Copy(dst, src)
	}
	r.spliced.Add(-1)
	return v.copySlowly(ctx, dst, src, out, m.chunk())
}

// meters are those of one way's bytes.
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

// copySlowly keeps the VM's bandwidth limit, as it is at the time.
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

// pace waits until so many bytes of a stream may pass.
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
