package live

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A guest kernel waiting for a spin lock that is never released keeps its vCPU busy for ever and
// does not answer. From outside, such a vCPU stays at one place of the kernel, with the same
// registers. Each vCPU's thread gets a signal per spinPeriod of its own CPU time, which costs an
// idle guest nothing, and compares the registers then.

const (
	spinPeriod = 500 * time.Millisecond // CPU time between two looks
	spinLimit  = 5 * time.Second        // CPU time at one place before a hang is reported
	spinRange  = 64                     // maximum size of a spin lock's loop, in bytes

	// A look elsewhere adds spinMiss, a look at the place subtracts one, and at spinLeave the vCPU
	// has left. So interrupts may take a quarter of the time, but after three looks elsewhere in a
	// row it has left.
	spinMiss  = 3
	spinLeave = 8
)

// guestKernel is the start of a 64-bit kernel's half of the address space.
const guestKernel = 1 << 63

// spinWatch detects a vCPU spinning in the guest's kernel. It belongs to the vCPU's thread.
type spinWatch struct {
	hang  func(c *kvm.VCPU, address uint64)
	limit time.Duration // of CPU time; 0: spinLimit

	place kvm.Regs      // registers at the first look at this place
	since time.Duration // the thread's CPU time at place
	away  int           // see spinMiss
	told  bool          // the hang is reported
}

// arm makes the calling thread look periodically. If the kernel refuses a timer, hangs are not
// detected.
func (s *spinWatch) arm() { _ = kvm.KickEvery(spinPeriod) }

// look is called when a signal has interrupted the guest.
func (s *spinWatch) look(c *kvm.VCPU) {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) != nil {
		return
	}
	regs, err := c.Regs()
	if err != nil {
		return
	}
	switch s.see(regs, time.Duration(now.Nano())) {
	case spinBegan:
		s.hang(c, s.place.RIP)
	case spinEnded:
		s.hang(c, 0)
	}
}

type spinChange int

const (
	spinSame spinChange = iota
	spinBegan
	spinEnded
)

// see evaluates the registers of a look, and the vCPU's CPU time so far.
func (s *spinWatch) see(r kvm.Regs, used time.Duration) spinChange {
	if !samePlace(&s.place, &r) {
		if s.away += spinMiss; s.away < spinLeave && s.place.RIP != 0 {
			return spinSame
		}
		ended := s.told
		s.place, s.since, s.away, s.told = r, used, 0, false
		if ended {
			return spinEnded
		}
		return spinSame
	}
	s.away = max(s.away-1, 0)
	if s.told || used-s.since < s.limitOrDefault() {
		return spinSame
	}
	s.told = true
	return spinBegan
}

func (s *spinWatch) limitOrDefault() time.Duration {
	if s.limit > 0 {
		return s.limit
	}
	return spinLimit
}

// samePlace reports whether both looks found the vCPU in one loop of the guest's kernel, changing
// only scratch registers. A loop that copies, counts or calls changes others.
func samePlace(a, b *kvm.Regs) bool {
	if a.RIP < guestKernel || b.RIP < guestKernel || max(a.RIP, b.RIP)-min(a.RIP, b.RIP) > spinRange {
		return false
	}
	x, y := *a, *b
	for _, r := range []*kvm.Regs{&x, &y} {
		r.RIP, r.RFLAGS, r.RAX, r.RCX, r.RDX = 0, 0, 0, 0, 0
	}
	return x == y
}

// vcpuHangs records that a vCPU spins in the guest's kernel, or has stopped spinning.
func (m *Machine) vcpuHangs(c *kvm.VCPU, address uint64) {
	m.stall.setHealth(func(h *vmm.Health) {
		if h.Hang = ""; address != 0 {
			h.Hang = fmt.Sprintf("vCPU %d spins at %#x", c.ID(), address)
		}
	})
}
