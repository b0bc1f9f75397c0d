package netd

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
)

// Idle times after which a flow of datagrams ends.
const (
	udpIdle  = 5 * time.Minute
	echoIdle = time.Minute
)

// packets are buffers for one datagram and its prefix. A flow uses one only while a datagram
// passes.
var packets = sync.Pool{New: func() any { return new([netwire.MaxDatagram + 1]byte) }}

// datagrams relays between the VMM and a connected socket.
type datagrams struct {
	v         *vm
	near, far net.Conn
	nearRaw   syscall.RawConn
	farRaw    syscall.RawConn
	in, out   atomic.Int64
	last      atomic.Int64 // time of the last datagram, in unix nanoseconds
	// toFar and toNear change a datagram in transit. If they return false, it is dropped. May be
	// nil.
	toFar, toNear func([]byte) bool
}

func (d *datagrams) close(bool) {
	d.near.Close()
	d.far.Close()
}

func (d *datagrams) counts() (in, out int64) { return d.in.Load(), d.out.Load() }

func (f *flow) openUDP() {
	verdict, ok := f.ask()
	if !ok {
		return
	}
	q := Question{Protocol: netwire.UDP, Far: f.asked.Far}
	if verdict.Outcome == NeedName { // datagrams contain no name to read
		f.deny(verdict)
		return
	}
	if f.v.viaUpstream(verdict) {
		refuseUpstream(f, "UDP", "; the gateway's name server answers")
		return
	}
	far, err := f.v.dial(f.ctx, netwire.UDP, f.target(verdict), q, verdict)
	if err != nil {
		f.fail(err)
		return
	}
	f.relayDatagrams(&datagrams{far: far}, udpIdle)
}

// relayDatagrams relays to a flow's end. d contains the far end.
func (f *flow) relayDatagrams(d *datagrams, idle time.Duration) {
	near := f.nearEnd(netwire.DatagramFDs)
	if near == nil {
		d.far.Close()
		return
	}
	d.v, d.near = f.v, near
	if err := d.take(); err != nil {
		d.close(true)
		f.finish(true, control.Cut, err.Error())
		return
	}
	d.last.Store(time.Now().UnixNano())
	if !f.begin(&live{close: d.close, counts: d.counts}, true) {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		d.pump(d.far, d.farRaw, d.fromFar, idle)
		f.end(false)
	}()
	d.pump(d.near, d.nearRaw, d.fromNear, idle)
	f.end(false)
	<-back
}

func (d *datagrams) take() (err error) {
	if d.nearRaw, err = d.near.(syscall.Conn).SyscallConn(); err == nil {
		d.farRaw, err = d.far.(syscall.Conn).SyscallConn()
	}
	return err
}

// pump calls step whenever conn is readable, until step returns false, the flow is closed, or no
// datagram has passed in either direction for the idle time.
func (d *datagrams) pump(
	conn net.Conn, raw syscall.RawConn, step func(fd int, b []byte) (more, again bool), idle time.Duration,
) {
	for more := true; more; {
		conn.SetReadDeadline(time.Unix(0, d.last.Load()).Add(idle))
		err := raw.Read(func(fd uintptr) bool {
			b := packets.Get().(*[netwire.MaxDatagram + 1]byte)
			defer packets.Put(b)
			var again bool
			more, again = step(int(fd), b[:])
			return !again
		})
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Since(time.Unix(0, d.last.Load())) < idle {
			continue
		}
		if err != nil {
			return
		}
	}
}

// fromNear passes on one packet from the VMM.
func (d *datagrams) fromNear(fd int, b []byte) (more, again bool) {
	n, err := unix.Read(fd, b)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return true, true
	case errors.Is(err, unix.EINTR):
		return true, false
	case err != nil || n == 0: // the VMM has closed its end
		return false, false
	}
	data, refused, err := netwire.ParsePacket(b[:n])
	if err != nil || refused != 0 {
		return false, false // only a broken VMM sends it: its flow ends
	}
	d.last.Store(time.Now().UnixNano())
	if !d.fits(len(data), true) || d.toFar != nil && !d.toFar(data) {
		return true, false
	}
	d.out.Add(int64(len(data)))
	d.sendFar(data)
	return true, false
}

// sendFar sends a datagram, and drops it if the kernel has no room, as networks do.
func (d *datagrams) sendFar(data []byte) {
	d.farRaw.Control(func(fd uintptr) {
		err := unix.Send(int(fd), data, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if d.refusal(err) { // caused by an earlier datagram: this one was not sent
			unix.Send(int(fd), data, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
	})
}

// fromFar passes on one datagram from the far end.
func (d *datagrams) fromFar(fd int, b []byte) (more, again bool) {
	n, err := unix.Read(fd, b[1:])
	switch {
	case errors.Is(err, unix.EAGAIN):
		return true, true
	case errors.Is(err, unix.EINTR), d.refusal(err):
		return true, false
	case err != nil:
		return false, false
	}
	d.last.Store(time.Now().UnixNano())
	if !d.fits(n, false) || d.toNear != nil && !d.toNear(b[1:n+1]) {
		return true, false
	}
	d.in.Add(int64(n))
	b[0] = netwire.PacketData
	d.sendNear(b[:n+1])
	return true, false
}

// sendNear sends a packet, and drops it if a slow VMM leaves no room.
func (d *datagrams) sendNear(packet []byte) {
	d.nearRaw.Control(func(fd uintptr) {
		unix.Send(int(fd), packet, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
}

// refusal passes on an error from the far end or the network, and reports whether err was such an
// error.
func (d *datagrams) refusal(err error) bool {
	reason := netwire.Reason(0)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		reason = netwire.Reset
	case errors.Is(err, unix.EHOSTUNREACH):
		reason = netwire.HostUnreachable
	case errors.Is(err, unix.ENETUNREACH):
		reason = netwire.NetUnreachable
	default:
		return false
	}
	d.sendNear(netwire.RefusalPacket(reason))
	return true
}

// fits reports whether a datagram is within the bandwidth limits of the VM and its tree. Other
// datagrams are dropped.
func (d *datagrams) fits(n int, out bool) bool {
	return d.v.meters(out).datagram(time.Now(), n)
}
