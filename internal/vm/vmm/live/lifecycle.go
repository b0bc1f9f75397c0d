package live

import (
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// lockIn locks mu if the state is in want. The caller unlocks it.
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

// Boot starts a guest in a shell. The machine owns the disks and the network, also after an error.
// The other files stay the caller's. After an error the machine can only be closed.
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
	m.devices.letOut() // a booted guest is not a clone
	m.runLocked()
	m.devices.serve()
	return nil
}

// begin locks mu of a shell and takes its disks for good. The caller unlocks mu. On error begin
// closes wire as well.
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

// runLocked makes every vCPU enter the guest and returns the result of enter.
func (m *Machine) runLocked() (runningAt int64) {
	m.state = vmm.StateRunning
	return m.cpus.enter()
}

// Pause stops the vCPUs and quiesces the devices. Guest memory does not change afterwards.
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

// Resume continues a paused machine, starts a prepared one, or waits for the gate of an armed one.
// It returns the time just before the last vCPU entered the guest, in nanoseconds of
// CLOCK_MONOTONIC.
func (m *Machine) Resume() (runningAt int64, err error) {
	if err := m.lockIn(vmm.StatePaused, vmm.StatePrepared, vmm.StateRunning, vmm.StateArmed,
		vmm.StateStalled); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	switch {
	case m.state == vmm.StateRunning, m.state == vmm.StateStalled: // a stalled machine continues by itself
		return startgate.Now(), nil
	case m.gate != nil && m.state != vmm.StatePaused: // armed or prepared
		m.state = vmm.StateRunning
		return m.gate.wait(), nil
	}
	return m.resumeLocked()
}

// resumeLocked continues the guest after a pause, or starts it after a restore.
func (m *Machine) resumeLocked() (runningAt int64, err error) {
	first := m.restored
	m.restored = false
	if first {
		// The clock resumes from its saved value, set just before the guest runs.
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

// Status returns the machine's report about itself.
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

// end records the guest's own end. vCPU threads call it. It must not wait for them, nor for mu,
// which Pause holds while waiting for them.
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

// Close ends the guest, waits for every thread and frees everything. It is idempotent. It must not
// be called from OnExit.
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
	m.remotes.end()
	m.stall.end()
	m.devices.close()
	m.cpus.close()
	m.vm.Close()
	m.disks.close()
	m.console.Close()
	return m.mem.Close()
}
