package kvm

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// VCPU is one virtual CPU. All methods except SetImmediateExit must be called by the thread that
// runs it.
type VCPU struct {
	fd  int
	id  int
	run []byte // struct kvm_run, shared with the kernel
}

// Close unmaps the run area and drops the descriptor.
func (c *VCPU) Close() error {
	err := unix.Munmap(c.run)
	c.run = nil
	if cerr := unix.Close(c.fd); err == nil {
		err = cerr
	}
	return err
}

// ID returns the vCPU's number and APIC id.
func (c *VCPU) ID() int { return c.id }

// Offsets into struct kvm_run.
const (
	offImmediateExit = 1
	offExitReason    = 8
	offUnion         = 32
)

// ExitReason returns the reason why the last Run returned.
func (c *VCPU) ExitReason() uint32 { return binary.LittleEndian.Uint32(c.run[offExitReason:]) }

// IOExit is an access to a port. Data aliases the run area: for reads, fill it before the next Run.
type IOExit struct {
	Write bool   // true for OUT, false for IN
	Size  int    // bytes per access: 1, 2 or 4
	Port  uint16 // port of the first byte
	Data  []byte // Size times the repeat count
}

// IO decodes an ExitIO. It returns an error for an inconsistent record.
func (c *VCPU) IO() (IOExit, error) {
	u := c.run[offUnion:]
	size, count := int(u[1]), int(binary.LittleEndian.Uint32(u[4:]))
	off := binary.LittleEndian.Uint64(u[8:])
	n := size * count
	if n <= 0 || off > uint64(len(c.run)) || uint64(n) > uint64(len(c.run))-off {
		return IOExit{}, fmt.Errorf("port exit of vCPU %d: %d x %d bytes at offset %d are outside the run area",
			c.id, count, size, off)
	}
	return IOExit{Write: u[0] == 1, Size: size, Port: binary.LittleEndian.Uint16(u[2:]),
		Data: c.run[off : off+uint64(n)]}, nil
}

// MMIOExit is an access to a guest-physical address without memory. Data
// aliases the run area: for reads, fill it before the next Run.
type MMIOExit struct {
	Write bool   // true for a store, false for a load
	Addr  uint64 // guest-physical
	Data  []byte // 1 to 8 bytes
}

// MMIO decodes an ExitMMIO.
func (c *VCPU) MMIO() MMIOExit {
	u := c.run[offUnion:]
	n := min(binary.LittleEndian.Uint32(u[16:]), 8)
	return MMIOExit{Write: u[20] != 0, Addr: binary.LittleEndian.Uint64(u), Data: u[8 : 8+n]}
}

// Suberror returns the first word of an ExitInternalError or ExitFailEntry or the type of an
// ExitSystemEvent.
func (c *VCPU) Suberror() uint32 { return binary.LittleEndian.Uint32(c.run[offUnion:]) }

// Regs reads the general-purpose registers.
func (c *VCPU) Regs() (r Regs, err error) {
	err = cget(c, "registers", nrGetRegs, &r)
	return r, err
}

// SetRegs loads the general-purpose registers.
func (c *VCPU) SetRegs(r *Regs) error { return cset(c, "registers", nrSetRegs, r) }

// SRegs reads the special registers.
func (c *VCPU) SRegs() (r SRegs, err error) {
	err = cget(c, "special registers", nrGetSRegs, &r)
	return r, err
}

// SetSRegs loads the special registers.
func (c *VCPU) SetSRegs(r *SRegs) error { return cset(c, "special registers", nrSetSRegs, r) }

// LAPIC reads the local APIC.
func (c *VCPU) LAPIC(l *LAPIC) error { return cget(c, "LAPIC", nrGetLAPIC, l) }

// SetLAPIC loads the local APIC.
func (c *VCPU) SetLAPIC(l *LAPIC) error { return cset(c, "LAPIC", nrSetLAPIC, l) }

// XSave reads FPU and vector state.
func (c *VCPU) XSave(x *XSave) error { return cget(c, "XSAVE", nrGetXSave, x) }

// SetXSave loads FPU and vector state.
func (c *VCPU) SetXSave(x *XSave) error { return cset(c, "XSAVE", nrSetXSave, x) }

// XCRs reads the extended control registers.
func (c *VCPU) XCRs(x *XCRs) error { return cget(c, "XCRs", nrGetXCRs, x) }

// SetXCRs loads the extended control registers.
func (c *VCPU) SetXCRs(x *XCRs) error { return cset(c, "XCRs", nrSetXCRs, x) }

// DebugRegs reads the debug registers.
func (c *VCPU) DebugRegs(d *DebugRegs) error { return cget(c, "debug registers", nrGetDebugRegs, d) }

// SetDebugRegs loads the debug registers.
func (c *VCPU) SetDebugRegs(d *DebugRegs) error { return cset(c, "debug registers", nrSetDebugRegs, d) }

// Events reads pending exceptions, interrupts and NMIs.
func (c *VCPU) Events(e *VCPUEvents) error { return cget(c, "events", nrGetVCPUEvents, e) }

// SetEvents loads pending exceptions, interrupts and NMIs.
func (c *VCPU) SetEvents(e *VCPUEvents) error { return cset(c, "events", nrSetVCPUEvents, e) }

// MPState reads whether the vCPU runs, is halted or waits for its start-up interrupt.
func (c *VCPU) MPState() (uint32, error) {
	var s uint32
	err := cget(c, "MP state", nrGetMPState, &s)
	return s, err
}

// SetMPState loads the multiprocessing state.
func (c *VCPU) SetMPState(s uint32) error { return cset(c, "MP state", nrSetMPState, &s) }

// SetCPUID sets the result of the guest's CPUID instruction. Call it before the first Run.
func (c *VCPU) SetCPUID(entries []CPUIDEntry) error {
	_, err := ioctlVar(c.fd, iocWrite, nrSetCPUID2, 8, encodeCPUID(entries))
	return c.wrap("set CPUID", err)
}

// CPUID reads the result of the guest's CPUID instruction.
func (c *VCPU) CPUID() ([]CPUIDEntry, error) {
	const room = 256
	buf := make([]byte, 8+room*cpuidEntrySize)
	binary.LittleEndian.PutUint32(buf, room)
	if _, err := ioctlVar(c.fd, iocRead|iocWrite, nrGetCPUID2, 8, buf); err != nil {
		return nil, c.wrap("get CPUID", err)
	}
	return decodeCPUID(buf), nil
}

const msrEntrySize = 16

// MSRs reads the given registers in order. The result is shorter than indices if the kernel stopped
// at a register that cannot be read.
func (c *VCPU) MSRs(indices []uint32) ([]MSR, error) {
	if len(indices) == 0 {
		return nil, nil
	}
	buf := make([]byte, 8+len(indices)*msrEntrySize)
	binary.LittleEndian.PutUint32(buf, uint32(len(indices)))
	for i, idx := range indices {
		binary.LittleEndian.PutUint32(buf[8+i*msrEntrySize:], idx)
	}
	n, err := ioctlVar(c.fd, iocRead|iocWrite, nrGetMSRs, 8, buf)
	if err != nil {
		return nil, c.wrap("get MSRs", err)
	}
	out := make([]MSR, min(int(n), len(indices)))
	for i := range out {
		b := buf[8+i*msrEntrySize:]
		out[i] = MSR{Index: binary.LittleEndian.Uint32(b), Value: binary.LittleEndian.Uint64(b[8:])}
	}
	return out, nil
}

// SetMSRs writes the given registers in order and returns the number written. It is less than
// len(msrs) if the kernel refused one.
func (c *VCPU) SetMSRs(msrs []MSR) (int, error) {
	if len(msrs) == 0 {
		return 0, nil
	}
	buf := make([]byte, 8+len(msrs)*msrEntrySize)
	binary.LittleEndian.PutUint32(buf, uint32(len(msrs)))
	for i, m := range msrs {
		binary.LittleEndian.PutUint32(buf[8+i*msrEntrySize:], m.Index)
		binary.LittleEndian.PutUint64(buf[16+i*msrEntrySize:], m.Value)
	}
	n, err := ioctlVar(c.fd, iocWrite, nrSetMSRs, 8, buf)
	return int(n), c.wrap("set MSRs", err)
}

// TSCKHz returns the frequency of the guest's time-stamp counter.
func (c *VCPU) TSCKHz() (uint32, error) {
	r, err := ioctl(c.fd, ioc(0, nrGetTSCKHz, 0), 0)
	return uint32(r), c.wrap("get TSC frequency", err)
}

// SetTSCKHz sets that frequency, if the host can scale it or it is the same.
func (c *VCPU) SetTSCKHz(khz uint32) error {
	_, err := ioctl(c.fd, ioc(0, nrSetTSCKHz, 0), uintptr(khz))
	return c.wrap("set TSC frequency", err)
}

// ClockCtrl marks the guest as paused, so that its watchdogs do not fire. It fails with EINVAL for
// a guest without kvm-clock. That is harmless.
func (c *VCPU) ClockCtrl() error {
	_, err := ioctl(c.fd, ioc(0, nrKVMClockCtrl, 0), 0)
	return c.wrap("tell guest of the pause", err)
}

func (c *VCPU) wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s of vCPU %d: %w", what, c.id, err)
	}
	return nil
}

func cget[T any](c *VCPU, what string, nr uintptr, p *T) error {
	return c.wrap("get "+what, ioctlPtr(c.fd, iocRead, nr, p))
}

func cset[T any](c *VCPU, what string, nr uintptr, p *T) error {
	return c.wrap("set "+what, ioctlPtr(c.fd, iocWrite, nr, p))
}
