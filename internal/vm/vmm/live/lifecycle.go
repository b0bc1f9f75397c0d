package live

import (
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// lockIn takes mu if the state is one of want; the caller unlocks.
func (m *Machine) lockIn(want ...vmm.State) error {
	m.mu.Lock()
	for _, s := range want {
		if m.state == s {
			return nil
		}
	}
	defer m.mu.Unlock()
	if m.state == vmm.StateStalled {
		return fmt.Errorf("%w: %s", vmm.ErrNoRoom, m.stall.now().Full)
	}
	return fmt.Errorf("%w: it is %s", vmm.ErrState, m.state)
}

// Boot starts a guest in a shell. Disks and network are the machine's, whatever comes of
// it; the other files stay the caller's. After an error the machine can only be closed.
func (m *Machine) Boot(c vmm.BootConfig) error {
	if err := m.begin(c.Disks, c.Net); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if err := m.devices.setWire(c.Net); err != nil {
		return err
	}
	if err := m.mem.MapAnonymous(); err != nil {
		return err
	}
	m.devices.lines = bootLines(len(m.devices.slots))
	if err := m.devices.fill(&m.disks, c.CID, m.mem); err != nil {
		return err
	}
	start, err := m.load(c)
	if err != nil {
		return err
	}
	if err := m.cpus.setUp(start); err != nil {
		return err
	}
	m.cid = c.CID
	m.devices.letOut() // a guest that boots is nobody's clone
	m.runLocked()
	m.devices.serve()
	return nil
}

// begin takes mu of a shell, and the disks of what is to run in it, for good; the caller
// unlocks. On error wire is closed as well.
func (m *Machine) begin(disks []vmm.Disk, wire *os.File) error {
	if err := m.lockIn(vmm.StateShell); err != nil {
		vmm.CloseDisks(disks)
		closeFiles([]*os.File{wire})
		return err
	}
	m.state = vmm.StateExited // until it runs
	m.disks.all = disks
	return nil
}

// load puts the kernel into memory.
func (m *Machine) load(c vmm.BootConfig) (boot.Start, error) {
	config := boot.Config{
		Kernel: c.Kernel, Cmdline: c.Cmdline, VCPUs: m.shape.VCPUs, MMIO: len(m.devices.slots), GenID: c.GenID,
	}
	if c.Initrd != nil {
		st, err := c.Initrd.Stat()
		if err != nil {
			return boot.Start{}, err
		}
		config.Initrd, config.InitrdSize = c.Initrd, st.Size()
	}
	return boot.Load(m.mem, config)
}

// runLocked lets every vCPU enter the guest; it returns what enter does.
func (m *Machine) runLocked() (runningAt int64) {
	m.state = vmm.StateRunning
	return m.cpus.enter()
}

// Pause stops the vCPUs and quiesces the devices; nothing changes guest memory afterwards.
func (m *Machine) Pause() error {
	if err := m.lockIn(vmm.StateRunning, vmm.StatePaused); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.state == vmm.StatePaused {
		return nil
	}
	m.cpus.park()
	if m.state != vmm.StateRunning { // the guest ended while it was being stopped
		return fmt.Errorf("%w: it is %s", vmm.ErrState, m.state)
	}
	if err := m.cpus.readTime(); err != nil {
		return err
	}
	m.devices.pause()
	m.state = vmm.StatePaused
	return nil
}

// Resume lets a paused machine run on or a prepared one begin, or waits until one behind a gate does. It
// returns when the last vCPU was about to enter the guest, in nanoseconds of CLOCK_MONOTONIC.
func (m *Machine) Resume() (runningAt int64, err error) {
	if err := m.lockIn(vmm.StatePaused, vmm.StatePrepared, vmm.StateRunning, vmm.StateArmed,
		vmm.StateStalled); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	switch {
	case m.state == vmm.StateRunning, m.state == vmm.StateStalled: // that one goes on by itself
		return startgate.Now(), nil
	case m.gate != nil && m.state != vmm.StatePaused: // armed or prepared
		m.state = vmm.StateRunning
		return m.gate.wait(), nil
	}
	return m.resumeLocked()
}

// resumeLocked lets the guest go on after a pause, or begin after a restore.
func (m *Machine) resumeLocked() (runningAt int64, err error) {
	first := m.restored
	m.restored = false
	if first {
		// Its time goes on where it stood: set just before it runs.
		if err := m.cpus.setTime(); err != nil {
			return 0, err
		}
	} else if err := m.cpus.tellOfPause(); err != nil {
		return 0, err
	}
	runningAt = m.runLocked()
	m.devices.resume()
	if first {
		m.devices.serve()
	}
	return runningAt, nil
}

// Status is the machine's account of itself.
func (m *Machine) Status() vmm.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := vmm.Status{
		State: m.state, Shape: m.shape, CID: m.cid,
		OverlayGeneration: m.disks.generations(), Health: m.stall.now(),
	}
	if vs := m.devices.vsock; vs != nil {
		s.Guest = vs.GuestTime()
	}
	return s
}

// end notes that the guest has ended by itself. It is called by vCPU threads
// and must not wait for them, nor for mu, which Pause holds while it does.
func (m *Machine) end(e vmm.Exit) {
	m.endOnce.Do(func() {
		m.ending.Store(true)
		m.cpus.interrupt()
		m.exiting.Go(func() {
			m.mu.Lock()
			m.state = vmm.StateExited
			m.mu.Unlock()
			if m.onExit != nil {
				m.onExit(e)
			}
		})
	})
}

// Close ends the guest, waits for every thread and frees everything; once is
// enough. It must not be called from OnExit.
func (m *Machine) Close() error {
	m.closeOnce.Do(func() { m.closeErr = m.close() })
	return m.closeErr
}

func (m *Machine) close() error {
	m.mu.Lock()
	m.state = vmm.StateExited
	calm := m.gate.rouse(m.cpus.all)
	m.cpus.park()
	calm()
	m.gate.close()
	m.mu.Unlock()
	m.exiting.Wait()
	m.stall.end()
	m.devices.close()
	m.cpus.close()
	m.vm.Close()
	m.disks.close()
	m.console.Close()
	return m.mem.Close()
}
