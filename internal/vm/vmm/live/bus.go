package live

import (
	"fmt"

	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/serial"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Port of the keyboard controller. Kernels use it to reset as a last resort.
const (
	portI8042    = 0x64
	i8042Reset   = 0xfe
	openBusValue = 0xff // value read from an unassigned port or address
)

// handleExit serves one exit of a vCPU. If false, the vCPU's run ends.
func (m *Machine) handleExit(c *kvm.VCPU) bool {
	switch reason := c.ExitReason(); reason {
	case kvm.ExitIO:
		return m.handleIO(c)
	case kvm.ExitMMIO:
		m.devices.mmio(c.MMIO())
		return true
	case kvm.ExitIntr, kvm.ExitHLT:
		return true
	case kvm.ExitShutdown:
		m.end(vmm.Exit{Kind: vmm.ExitFault, Reason: "the guest ended in a triple fault"})
	case kvm.ExitSystemEvent:
		m.end(vmm.Exit{Kind: vmm.ExitFault, Reason: fmt.Sprintf("KVM system event %d", c.Suberror())})
	default:
		m.end(vmm.Exit{Kind: vmm.ExitFault, Reason: describeFault(c, reason)})
	}
	return false
}

func describeFault(c *kvm.VCPU, reason uint32) string {
	at := ""
	if r, err := c.Regs(); err == nil {
		at = fmt.Sprintf(" at instruction %#x", r.RIP)
	}
	switch reason {
	case kvm.ExitInternalError:
		return fmt.Sprintf("KVM could not go on with vCPU %d (internal error %d)%s", c.ID(), c.Suberror(), at)
	case kvm.ExitFailEntry:
		return fmt.Sprintf("the CPU refused the state of vCPU %d (hardware reason %#x)%s", c.ID(), c.Suberror(), at)
	}
	return fmt.Sprintf("vCPU %d left the guest for the unknown reason %d%s", c.ID(), reason, at)
}

func (m *Machine) vcpuFailed(c *kvm.VCPU, err error) {
	m.end(vmm.Exit{Kind: vmm.ExitFault, Reason: fmt.Sprintf("run vCPU %d: %v", c.ID(), err)})
}

func (m *Machine) handleIO(c *kvm.VCPU) bool {
	io, err := c.IO()
	if err != nil {
		m.end(vmm.Exit{Kind: vmm.ExitFault, Reason: err.Error()})
		return false
	}
	for off := 0; off < len(io.Data); off += io.Size {
		b := io.Data[off : off+io.Size]
		if !io.Write {
			m.devices.readPort(io.Port, b)
		} else if end := m.devices.writePort(io.Port, b[0]); end != nil {
			m.end(*end)
			return false
		}
	}
	return true
}

func (d *deviceSet) readPort(port uint16, b []byte) {
	for i := range b {
		b[i] = openBusValue
	}
	if port >= boot.SerialPort && port < boot.SerialPort+serial.PortCount {
		b[0] = d.uart.Read(port - boot.SerialPort)
	}
}

// writePort returns the guest's exit if the write requests one.
func (d *deviceSet) writePort(port uint16, v byte) *vmm.Exit {
	switch {
	case port >= boot.SerialPort && port < boot.SerialPort+serial.PortCount:
		d.uart.Write(port-boot.SerialPort, v)
	case port == boot.ResetPort && v == boot.ResetValue, port == portI8042 && v == i8042Reset:
		return &vmm.Exit{Kind: vmm.ExitReset, Reason: "the guest rebooted"}
	case port == boot.SleepPort && v == boot.SleepS5:
		return &vmm.Exit{Kind: vmm.ExitPowerOff, Reason: "the guest switched itself off"}
	}
	return nil
}

// mmio serves the windows of the virtio devices. Other addresses read as open bus.
func (d *deviceSet) mmio(x kvm.MMIOExit) {
	i := (x.Addr - boot.MMIOBase) / boot.MMIOStride
	if x.Addr < boot.MMIOBase || i >= uint64(len(d.slots)) || d.slots[i].transport == nil {
		if !x.Write {
			for j := range x.Data {
				x.Data[j] = openBusValue
			}
		}
		return
	}
	off := (x.Addr - boot.MMIOBase) % boot.MMIOStride
	if x.Write {
		d.slots[i].transport.WriteMMIO(off, x.Data)
	} else {
		d.slots[i].transport.ReadMMIO(off, x.Data)
	}
}
