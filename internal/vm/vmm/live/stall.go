package live

import (
	"fmt"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// A machine stalls while its disk finds no room on the host, as with QEMU's werror=enospc: the
// guest sees neither an error nor the passing time. The request stays in the guest's queue
// (virtio.ErrLater), and no goroutine holds it: Close, and a pause in progress, find quiet devices.
// A stalled machine refuses to be paused, saved or captured.

// Delays between the retries of a stalled machine.
const (
	firstRetry = 50 * time.Millisecond
	maxRetry   = time.Second
)

// halting is a machine for stalling and resuming. Both methods report whether they changed the
// state.
type halting interface {
	standStill() bool
	resumeStalled() bool
}

// stall tracks the health of a machine's disks.
type stall struct {
	machine  halting
	retry    func()           // makes the disks try again
	onHealth func(vmm.Health) // may be nil
	warn     func(error)

	all sync.WaitGroup // waitForRoom and tellHealth

	mu      sync.Mutex // guards the fields below; taken last
	full    error      // met by a device since waitForRoom last checked
	waiting bool       // waitForRoom is running
	telling bool       // tellHealth is running
	health  vmm.Health
	told    int           // Seq of the last reported health
	over    bool          // the machine is being closed
	closed  chan struct{} // closed when over is set; made with the first goroutine
}

// goLocked starts one of the goroutines unless it is running.
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

// end stops the retries and waits for the goroutines.
func (s *stall) end() {
	s.mu.Lock()
	if !s.over && s.closed != nil {
		close(s.closed)
	}
	s.over = true
	s.mu.Unlock()
	s.all.Wait()
}

// noRoom is called by a device's worker, which must not wait for the machine: a pause holds the
// machine and waits for the worker.
func (s *stall) noRoom(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = err
	s.goLocked(&s.waiting, s.waitForRoom)
}

// waitForRoom stalls the machine, retries until the disks have room, and resumes it.
func (s *stall) waitForRoom() {
	for delay := firstRetry; ; delay = min(2*delay, maxRetry) {
		s.mu.Lock()
		err := s.full
		s.full = nil
		s.mu.Unlock()
		if err == nil {
			if s.machine.resumeStalled() {
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

// rest ends the waiting, unless a disk has reported missing room again meanwhile.
func (s *stall) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = s.full != nil
	return !s.waiting
}

// lost records the first lost write.
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

// setHealth changes the health and reports it to the daemon. It does not wait for the report.
func (s *stall) setHealth(change func(*vmm.Health)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.health)
	s.health.Seq++
	if s.onHealth != nil {
		s.goLocked(&s.telling, s.tellHealth)
	}
}

// tellHealth reports the health to the daemon until the latest is sent.
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

// standStill parks the vCPUs of a running machine. Its devices continue, since a stalled machine
// cannot be saved. A paused or gated machine is left unchanged, and its disk waits all the same.
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

// resumeStalled resumes a stalled machine.
func (m *Machine) resumeStalled() bool {
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
