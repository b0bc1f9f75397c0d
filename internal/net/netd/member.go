package netd

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/net/framelink"
	"github.com/forkd/forkd/internal/net/members"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
)

// member is a VM in a private network.
type member struct {
	v    *vm
	as   control.Member
	in   *privateNet
	key  privateKey
	link *net.UnixConn // to the VMM: frames, one in each message
	raw  syscall.RawConn
	out  *framelink.Writer
	once sync.Once
}

// messages are buffers for one message of a link. A link uses one only while a frame passes.
var messages = sync.Pool{New: func() any { return new([members.MaxFrame + 1]byte) }}

// joinPrivate makes a VM a member of its private network and sends the VMM its link.
func (v *vm) joinPrivate(as control.Member) error {
	ours, theirs, err := netwire.DatagramFDs()
	if err != nil {
		return err
	}
	defer unix.Close(theirs)
	link, err := connOf(ours)
	if err != nil {
		return err
	}
	m := &member{v: v, as: as, link: link}
	if m.raw, err = link.SyscallConn(); err != nil {
		link.Close()
		return err
	}
	m.out = framelink.New(m.raw, v.s.private.waiting)
	if err := v.wire.SendLink(theirs); err != nil {
		link.Close()
		return fmt.Errorf("send the link of a private network: %w", err)
	}
	v.s.private.join(m)
	v.mu.Lock()
	v.member = m
	gone := !v.connected
	v.mu.Unlock()
	if gone {
		m.leave()
		return nil
	}
	v.wait.Go(m.run)
	return nil
}

// leave ends the membership. It is idempotent.
func (m *member) leave() {
	if m != nil {
		m.once.Do(func() {
			m.v.s.private.leave(m)
			m.link.Close()
			m.out.Close()
		})
	}
}

// run passes the member's packets on until it leaves, or its VMM closes the link.
func (m *member) run() {
	defer m.leave()
	for more := true; more; {
		err := m.raw.Read(func(fd uintptr) bool {
			b := messages.Get().(*[members.MaxFrame + 1]byte)
			defer messages.Put(b)
			n, err := unix.Read(int(fd), b[:])
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
				return true
			}
			if more = err == nil && n > 0; more {
				m.packet(b[:n])
			}
			return true
		})
		if err != nil {
			return
		}
	}
}

// packet handles one packet of the guest. Packets with another source than the guest's address, and
// packets that are not for members, are dropped.
func (m *member) packet(b []byte) {
	p, err := members.Parse(b)
	guest, now := guestnet.Guest4.Addr(), time.Now()
	if err != nil || p.Src != guest || !guestnet.Members4.Contains(p.Dst) {
		return
	}
	if !m.v.meters(true).datagram(now, p.Size()) {
		return
	}
	m.v.had.add(0, int64(p.Size()))
	to, answer, over := m.in.route(m, &p, now)
	tellAll(over)
	switch {
	case answer != nil:
		m.send(answer)
	case to != nil && to.v.meters(false).datagram(now, p.Size()):
		if _, is := p.Quoted(); is {
			p.TranslateQuoted(m.as.Addr, guest)
		} else {
			p.Translate(m.as.Addr, guest)
		}
		to.v.had.add(int64(p.Size()), 0)
		to.send(p.Bytes())
	}
}

// send passes a frame to the VMM. It does not wait, and drops the frame if too many wait already.
func (m *member) send(frame []byte) { m.out.Send(frame) }

// admitMember counts a new flow to another member. It returns the exceeded limit, and whether that
// is the number of flows.
func (v *vm) admitMember(open int, now time.Time) (limit string, most bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !v.rate.Try(now): // first: the search for idle flows takes time
		return fmt.Sprintf("%d new flows in a second", v.limits.FlowsPerSecond), false
	case open+len(v.flows) >= v.limits.Flows:
		return fmt.Sprintf("%d flows at once", v.limits.Flows), true
	}
	return "", false
}

func (v *vm) flowLimit() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.limits.Flows
}

// memberNow returns the VM's membership, or nil.
func (v *vm) memberNow() *member {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.member
}

// namesOf returns the resolver of names in the private network of a binding, or nil.
func (p *privateNets) namesOf(b control.Binding) func(string) (netip.Addr, bool) {
	if b.Member == nil {
		return nil
	}
	key := privateKey{b.Tenant, b.Member.Network}
	return func(name string) (netip.Addr, bool) {
		p.mu.Lock()
		n := p.all[key]
		p.mu.Unlock()
		if n == nil {
			return netip.Addr{}, false
		}
		return n.lookup(name)
	}
}
