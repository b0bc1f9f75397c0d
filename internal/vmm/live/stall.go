package live

import (
	"fmt"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/vmm"
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

// stall is what a machine knows of its disks' trouble.
type stall struct {
	all sync.WaitGroup // waitForRoom and tellDisks

	mu      sync.Mutex // guards what follows; taken last
	full    error      // met by a device since waitForRoom last looked
	waiting bool       // waitForRoom is under way
	telling bool       // tellDisks is under way
	health  vmm.DiskHealth
	told    int           // the Seq of the health that tellDisks has told
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

// diskFull is called by a device's worker, which must not wait for the machine: a
// pause holds it and waits for the worker.
func (m *Machine) diskFull(err error) {
	s := &m.stall
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = err
	s.goLocked(&s.waiting, m.waitForRoom)
}

// waitForRoom stops the machine, tries until the disks have what they lacked, and lets it go on.
func (m *Machine) waitForRoom() {
	s := &m.stall
	for delay := firstRetry; ; delay = min(2*delay, maxRetry) {
		s.mu.Lock()
		err := s.full
		s.full = nil
		s.mu.Unlock()
		if err == nil {
			m.goOn()
			if s.rest() {
				return
			}
			delay = firstRetry
			continue
		}
		m.standStill(err)
		select {
		case <-s.closed:
			return
		case <-time.After(delay):
		}
		for _, d := range m.overlays {
			if d.retry != nil {
				d.retry()
			}
		}
	}
}

// rest ends the waiting, unless a disk has complained again meanwhile.
func (s *stall) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = s.full != nil
	return !s.waiting
}

// standStill parks the vCPUs of a machine that runs. Devices go on: nobody may save it now. One
// that is behind a gate, or paused, is left as it is; its disk waits all the same.
func (m *Machine) standStill(err error) {
	m.mu.Lock()
	running := m.state == vmm.StateRunning
	if running {
		m.parkLocked()
		m.state = vmm.StateStalled
	}
	m.mu.Unlock()
	if running {
		m.setHealth(func(h *vmm.DiskHealth) { h.Full = err.Error() })
	}
}

func (m *Machine) goOn() {
	m.mu.Lock()
	stalled := m.state == vmm.StateStalled
	if stalled {
		if err := m.tellOfPause(); err != nil {
			m.warn(err)
		}
		m.runLocked()
	}
	m.mu.Unlock()
	if stalled {
		m.setHealth(func(h *vmm.DiskHealth) { h.Full = "" })
	}
}

// diskLost notes the first loss of a write.
func (m *Machine) diskLost(err error) {
	if m.health().Lost != "" {
		return
	}
	m.warn(fmt.Errorf("%w; this disk takes no more writes", err))
	m.setHealth(func(h *vmm.DiskHealth) { h.Lost = err.Error() })
}

// lost is the error by which a disk lost a write, if one did.
func (m *Machine) lost() error {
	for _, d := range m.overlays {
		if err := d.Broken(); err != nil {
			return fmt.Errorf("%w: disk %d: %w", vmm.ErrLost, d.index, err)
		}
	}
	return nil
}

func (m *Machine) health() vmm.DiskHealth {
	m.stall.mu.Lock()
	defer m.stall.mu.Unlock()
	return m.stall.health
}

// setHealth changes what the daemon is told. It does not wait for it.
func (m *Machine) setHealth(change func(*vmm.DiskHealth)) {
	s := &m.stall
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.health)
	s.health.Seq++
	if m.onDisk != nil {
		s.goLocked(&s.telling, m.tellDisks)
	}
}

// tellDisks tells the daemon until it knows the last.
func (m *Machine) tellDisks() {
	s := &m.stall
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
		m.onDisk(h)
	}
}
