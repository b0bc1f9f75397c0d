package live

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/boot"
	"github.com/forkd/forkd/internal/kvm"
	"github.com/forkd/forkd/internal/startgate"
	"github.com/forkd/forkd/internal/vmm"
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
		return fmt.Errorf("%w: %s", vmm.ErrNoRoom, m.health().Full)
	}
	return fmt.Errorf("%w: it is %s", vmm.ErrState, m.state)
}

// Boot starts a guest in a shell. The disks are the machine's, whatever comes of
// it; the other files stay the caller's. After an error the machine can only be closed.
func (m *Machine) Boot(c vmm.BootConfig) error {
	if err := m.begin(c.Disks); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if err := m.mem.MapAnonymous(); err != nil {
		return err
	}
	if err := m.attachDevices(c.CID); err != nil {
		return err
	}
	start, err := m.load(c)
	if err != nil {
		return err
	}
	for _, v := range m.vcpus {
		if err := setUpVCPU(v.cpu, start); err != nil {
			return err
		}
	}
	m.cid = c.CID
	m.runLocked()
	m.serve()
	return nil
}

// begin takes mu of a shell, and the disks of what is to run in it, for good; the caller unlocks.
func (m *Machine) begin(disks []vmm.Disk) error {
	if err := m.lockIn(vmm.StateShell); err != nil {
		vmm.CloseDisks(disks)
		return err
	}
	m.state = vmm.StateExited // until it runs
	m.disks = disks
	return nil
}

// load puts the kernel into memory.
func (m *Machine) load(c vmm.BootConfig) (boot.Start, error) {
	config := boot.Config{
		Kernel: c.Kernel, Cmdline: c.Cmdline, VCPUs: m.shape.VCPUs, MMIO: len(m.slots), GenID: c.GenID,
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

// runLocked lets every vCPU enter the guest.
func (m *Machine) runLocked() {
	m.state = vmm.StateRunning
	var entered sync.WaitGroup
	entered.Add(len(m.vcpus))
	m.startLocked(func(*vcpu) bool { entered.Done(); return true })
	entered.Wait()
}

// startLocked hands every vCPU to its thread, which calls pass first.
func (m *Machine) startLocked(pass func(*vcpu) bool) {
	m.started = true
	for _, v := range m.vcpus {
		v.start(pass)
	}
}

// parkLocked stops every vCPU and waits until none is in the guest.
func (m *Machine) parkLocked() {
	if !m.started {
		return
	}
	for _, v := range m.vcpus {
		v.interrupt()
	}
	for _, v := range m.vcpus {
		v.park()
	}
	m.started = false
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
	m.parkLocked()
	if m.state != vmm.StateRunning { // the guest ended while it was being stopped
		return fmt.Errorf("%w: it is %s", vmm.ErrState, m.state)
	}
	clock, err := m.vm.Clock()
	if err != nil {
		return err
	}
	if m.tsc, err = m.readTSC(); err != nil {
		return err
	}
	m.clock = clock.Clock
	m.pauseDevices()
	m.state = vmm.StatePaused
	return nil
}

// Resume lets a paused machine run on or a prepared one begin, or waits until one behind a gate does. It
// returns when the last vCPU was about to enter the guest, in nanoseconds of CLOCK_MONOTONIC.
func (m *Machine) Resume() (runningAt int64, err error) {
	if err := m.lockIn(vmm.StatePaused, vmm.StatePrepared, vmm.StateRunning, vmm.StateArmed, vmm.StateStalled); err != nil {
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
		if err := m.setTime(); err != nil {
			return 0, err
		}
	} else if err := m.tellOfPause(); err != nil {
		return 0, err
	}
	m.runLocked()
	runningAt = startgate.Now()
	m.resumeDevices()
	if first {
		m.serve()
	}
	return runningAt, nil
}

// tellOfPause keeps the guest's watchdogs quiet.
func (m *Machine) tellOfPause() error {
	for _, v := range m.vcpus {
		// Guests without kvm-clock have nothing to be told.
		if err := v.cpu.ClockCtrl(); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}

// Status is the machine's account of itself.
func (m *Machine) Status() vmm.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := vmm.Status{State: m.state, Shape: m.shape, CID: m.cid, OverlayGeneration: m.generations(), Disks: m.health()}
	if m.vsock != nil {
		s.Guest = m.vsock.GuestTime()
	}
	return s
}

// end notes that the guest has ended by itself. It is called by vCPU threads
// and must not wait for them, nor for mu, which Pause holds while it does.
func (m *Machine) end(e vmm.Exit) {
	m.endOnce.Do(func() {
		m.ending.Store(true)
		for _, v := range m.vcpus {
			v.interrupt()
		}
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
	calm := m.gate.rouse(m.vcpus)
	m.parkLocked()
	calm()
	m.gate.close()
	m.mu.Unlock()
	m.exiting.Wait()
	m.stall.end()
	if m.stopVsock != nil {
		m.stopVsock()
	}
	if m.host.Vsock != nil {
		m.host.Vsock.Close()
	}
	m.serving.Wait()
	for i, s := range m.slots {
		if s.transport != nil {
			s.transport.Close() // and its kick
		} else {
			s.kick.Close()
		}
		m.slots[i].transport = nil
	}
	for _, v := range m.vcpus {
		v.close()
	}
	for _, fd := range m.fds {
		unix.Close(fd)
	}
	m.vm.Close()
	vmm.CloseDisks(m.disks)
	for _, d := range m.overlays {
		closeFiles(d.frozen)
	}
	m.console.Close()
	return m.mem.Close()
}

// MSRs set at boot (Intel SDM volume 4).
const (
	msrMiscEnable = 0x1a0
	fastStrings   = 1
	mtrrWriteBack = 1<<11 | 6 // enabled, default type write-back
)

// setUpVCPU prepares a vCPU for its first entry. The others than the first wait
// for the start-up interrupt in the state that KVM gave them.
func setUpVCPU(c *kvm.VCPU, s boot.Start) error {
	if _, err := c.SetMSRs([]kvm.MSR{{Index: msrMTRRDefType, Value: mtrrWriteBack}, {Index: msrMiscEnable, Value: fastStrings}}); err != nil {
		return err
	}
	if c.ID() != 0 {
		return nil
	}
	if err := c.SetRegs(&kvm.Regs{RIP: s.RIP, RSP: s.RSP, RBP: s.RSP, RSI: s.RSI, RFLAGS: 2}); err != nil {
		return err
	}
	sr, err := c.SRegs()
	if err != nil {
		return err
	}
	longMode(&sr, s)
	return c.SetSRegs(&sr)
}

// CR0 bits beside PE and PG: MP, ET, NE, WP, as Linux itself sets them.
const cr0Base = 1<<1 | 1<<4 | 1<<5 | 1<<16

func longMode(sr *kvm.SRegs, s boot.Start) {
	flat := kvm.Segment{Limit: 0xffffffff, Present: 1, S: 1, G: 1}
	code, data, task := flat, flat, kvm.Segment{Limit: 0xffffffff, Present: 1, G: 1, Type: 0xb, Selector: s.TR}
	code.Selector, code.Type, code.L = s.CS, 0xb, 1
	data.Selector, data.Type, data.DB = s.DS, 0x3, 1
	sr.CS, sr.TR = code, task
	sr.DS, sr.ES, sr.FS, sr.GS, sr.SS = data, data, data, data, data
	sr.GDT = kvm.DTable{Base: s.GDTBase, Limit: s.GDTLimit}
	sr.IDT = kvm.DTable{}
	sr.CR0 = boot.CR0PE | boot.CR0PG | cr0Base
	sr.CR3, sr.CR4 = s.CR3, boot.CR4PAE
	sr.EFER |= boot.EFERLME | boot.EFERLMA
}
