package netd

import (
	"net"
	"net/netip"
	"os"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
)

// run opens a flow, and relays it to its end unless it is handed over.
func (f *flow) run() {
	far := f.asked.Far.Addr()
	switch {
	case far == guestnet.Gateway4 || far == guestnet.Gateway6:
		f.serveGateway()
	case f.asked.Protocol == netwire.TCP:
		f.openTCP()
	case f.asked.Protocol == netwire.UDP:
		f.openUDP()
	default:
		f.openEcho()
	}
}

// ask judges a flow by its address, and refuses it if the verdict is Deny.
func (f *flow) ask() (verdict Verdict, ok bool) {
	q := Question{Protocol: f.asked.Protocol, Far: f.asked.Far}
	verdict = f.v.judge.Flow(q)
	f.judged(q, verdict, "")
	if verdict.Outcome == Deny {
		f.deny(verdict)
		return verdict, false
	}
	return verdict, true
}

// target returns the address to dial for an allowed flow.
func (f *flow) target(verdict Verdict) netip.AddrPort {
	if verdict.Dial.IsValid() {
		return verdict.Dial
	}
	return f.asked.Far
}

func (f *flow) openTCP() {
	verdict, ok := f.ask()
	if !ok {
		return
	}
	if verdict.Outcome == NeedName {
		f.relayNamed(nil)
		return
	}
	q := Question{Protocol: netwire.TCP, Far: f.asked.Far}
	if f.isPlain(verdict) && !verdict.Dial.IsValid() && !f.v.viaUpstream(verdict) {
		fd, err := f.v.connect(f.ctx, f.asked.Far, q, verdict)
		if err != nil {
			f.fail(err)
			return
		}
		f.pick(fd, verdict)
		return
	}
	c, err := f.v.dial(f.ctx, netwire.TCP, f.target(verdict), q, verdict)
	if err != nil {
		f.fail(err)
		return
	}
	far := c.(*net.TCPConn)
	if !f.isPlain(verdict) {
		f.relayNamed(far)
		return
	}
	fd, err := duplicate(far)
	far.Close()
	if err != nil {
		f.fail(err)
		return
	}
	f.pick(fd, verdict)
}

// pick hands a connected socket over or relays it, as the current policy requires.
func (f *flow) pick(fd int, verdict Verdict) {
	switch {
	case f.isPlain(verdict) && f.v.mayHandOver():
		f.handOver(fd)
	case f.isPlain(verdict):
		f.relayPlain(fd)
	default:
		far, err := tcpConn(fd)
		if err != nil {
			f.fail(err)
			return
		}
		f.relayNamed(far)
	}
}

// isPlain reports whether a flow can be relayed without inspection.
func (f *flow) isPlain(verdict Verdict) bool {
	return !verdict.Peek && !(f.asked.Far.Port() == httpsPort && f.v.judge.HasHeaders())
}

// mayHandOver reports whether sockets may be handed over. A bandwidth limit needs relaying.
func (v *vm) mayHandOver() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.handover && v.limits.BytesPerSecond == 0 && v.tree == nil
}

// handOver sends the VMM a connected socket. Our duplicate stays outside the runtime's poller,
// which would wake for each segment.
func (f *flow) handOver(fd int) {
	h := &handedSocket{hangups: f.v.s.hangups, fd: fd}
	if !f.answer() {
		h.close(true)
		f.remove()
		return
	}
	err := error(unix.ECANCELED)
	if f.begin(&live{sever: h.sever, close: h.close, counts: h.counts, unpaced: always}, false) {
		err = h.send(f.v.wire, f.id)
		costsOne(f)
	}
	if err != nil {
		f.finish(true, control.Cut, "it cannot be handed over: "+err.Error())
		f.v.wire.Send(netwire.Message{Kind: netwire.Refused, ID: f.id, Reason: netwire.Reset})
		return
	}
	h.watch(func() { f.end(false) })
}

// always is for a socket of the VMM: its bytes bypass forkd-net.
func always() bool { return true }

func duplicate(c *net.TCPConn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	ctl := raw.Control(func(old uintptr) {
		fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if ctl != nil {
		return -1, ctl
	}
	return fd, os.NewSyscallError("fcntl", err)
}

// nearEnd creates the pair of sockets for a relayed flow and sends the VMM its end. It returns nil
// if the flow is gone.
func (f *flow) nearEnd(pair func() (a, b int, err error)) *net.UnixConn {
	ours, theirs, err := pair()
	if err != nil {
		f.fail(err)
		return nil
	}
	defer unix.Close(theirs)
	if !f.answer() {
		unix.Close(ours)
		f.remove()
		return nil
	}
	if err := f.v.wire.SendFD(f.id, theirs); err != nil {
		unix.Close(ours)
		f.finish(true, control.Cut, "it cannot be handed over: "+err.Error())
		f.v.wire.Send(netwire.Message{Kind: netwire.Refused, ID: f.id, Reason: netwire.Reset})
		return nil
	}
	// The VMM can start while this end is prepared.
	c, err := connOf(ours)
	if err != nil {
		f.finish(true, control.Cut, "it cannot be relayed: "+err.Error())
		f.tellEnd(netwire.Broken)
		return nil
	}
	return c
}

// connOf takes ownership of a socket. It closes fd in any case.
func connOf(fd int) (*net.UnixConn, error) {
	c, err := connOfAny(fd)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// tcpConn takes ownership of a connected socket. It closes fd in any case.
func tcpConn(fd int) (*net.TCPConn, error) {
	unix.SetNonblock(fd, false) // otherwise the runtime would needlessly poll fd as well
	c, err := connOfAny(fd)
	if err != nil {
		return nil, err
	}
	far := c.(*net.TCPConn)
	far.SetKeepAliveConfig(keepAlive)
	return far, nil
}

func connOfAny(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "flow")
	defer file.Close()
	return net.FileConn(file)
}
