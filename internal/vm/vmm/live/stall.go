package live

import (
	"fmt"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// A machine whose disk finds no room on the host stands still until there is some, as
// with QEMU's werror=enospc: the guest sees neither an error nor that time passes. The
// request stays in the guest's queue (virtio.ErrLater), so that no goroutine holds it:
// Close, and a pause that was under way, find devices that rest. What stands still refuses
// to be paused, saved or captured.

// How long a machine that stands still waits before it tries again.
const (
	firstRetry = 50 * time.Millisecond
	maxRetry   = time.Second
)

// halting is a machine that can be made to stand still. Both report whether they changed that.
type halting interface {
	standStill() bool
	goOn() bool
}

// stall is what a machine knows of its disks' trouble.
type stall struct {
	machine  halting
	retry    func()           // has the disks try again
	onHealth func(vmm.Health) // may be nil
	warn     func(error)

	all sync.WaitGroup // waitForRoom and tellHealth

	mu      sync.Mutex // guards what follows; taken last
	full    error      // met by a device since waitForRoom last looked
	waiting bool       // waitForRoom is under way
	telling bool       // tellHealth is under way
	health  vmm.Health
	told    int           // the Seq of the health that tellHealth has told
	over    bool          // the machine is being closed
	closed  chan struct{} // closed then; made with the first goroutine
}

// goLocked starts one of the goroutines unless it runs.
func (s *stall) goLocked(running *bool, f func()) {
	if s.over || *running {
		return
	}
	if s.closed == nil {
		s.closed = make(chan struct{})
	}
	*running = true
	s.all.Go(f)
}

// end waits until nobody tries any more.
func (s *stall) end() {
	s.mu.Lock()
	if !s.over && s.closed != nil {
		close(s.closed)
	}
	s.over = true
	s.mu.Unlock()
	s.all.Wait()
}

// noRoom is called by a device's worker, which must not wait for the machine: a
// pause holds it and waits for the worker.
func (s *stall) noRoom(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = err
	s.goLocked(&s.waiting, s.waitForRoom)
}

// waitForRoom stops the machine, tries until the disks have what they lacked, and lets it go on.
func (s *stall) waitForRoom() {
	for delay := firstRetry; ; delay = min(2*delay, maxRetry) {
		s.mu.Lock()
		err := s.full
		s.full = nil
		s.mu.Unlock()
		if err == nil {
			if s.machine.goOn() {
				s.setHealth(func(h *vmm.Health) { h.Full = "" })
			}
			if s.rest() {
				return
			}
			delay = firstRetry
			continue
		}
		if s.machine.standStill() {
			s.setHealth(func(h *vmm.Health) { h.Full = err.Error() })
		}
		select {
		case <-s.closed:
			return
		case <-time.After(delay):
		}
		s.retry()
	}
}

// rest ends the waiting, unless a disk has complained again meanwhile.
func (s *stall) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = s.full != nil
	return !s.waiting
}

// lost notes the first loss of a write.
func (s *stall) lost(err error) {
	if s.now().Lost != "" {
		return
	}
	s.warn(fmt.Errorf("%w; this disk takes no more writes", err))
	s.setHealth(func(h *vmm.Health) { h.Lost = err.Error() })
}

func (s *stall) now() vmm.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health
}

// setHealth changes what the daemon is told. It does not wait for it.
func (s *stall) setHealth(change func(*vmm.Health)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.health)
	s.health.Seq++
	if s.onHealth != nil {
		s.goLocked(&s.telling, s.tellHealth)
	}
}

// tellHealth tells the daemon until it knows the last.
func (s *stall) tellHealth() {
	for {
		s.mu.Lock()
		h := s.health
		if s.told == h.Seq {
			s.telling = false
			s.mu.Unlock()
			return
		}
		s.told = h.Seq
		s.mu.Unlock()
		s.onHealth(h)
	}
}

// standStill parks the vCPUs of a machine that runs. Devices go on: nobody may save it now. One
// that is behind a gate, or paused, is left as it is; its disk waits all the same.
func (m *Machine) standStill() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	running := m.state == vmm.StateRunning
	if running {
		m.cpus.park()
		m.state = vmm.StateStalled
	}
	return running
}

// goOn lets a machine that stands still run.
func (m *Machine) goOn() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	stalled := m.state == vmm.StateStalled
	if stalled {
		if err := m.cpus.tellOfPause(); err != nil {
			m.warnings.warn(err)
		}
		m.runLocked()
	}
	return stalled
}
