package live

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/forkd/forkd/internal/vm/kvm"
)

// Versions of the sections written by this package (docs/inside/formats/vmstate.md).
const (
	vcpuVersion = 1
	maxMSRs     = 4096
)

// MSRs with special handling.
const (
	msrTSC           = 0x10
	msrTSCDeadline   = 0x6e0
	msrKVMWallClock  = 0x11
	msrKVMWallClock2 = 0x4b564d00
)

// saveVCPU reads a parked vCPU's state.
func saveVCPU(c *kvm.VCPU, indices []uint32) ([]byte, error) {
	var (
		xsave  kvm.XSave
		xcrs   kvm.XCRs
		debug  kvm.DebugRegs
		events kvm.VCPUEvents
		lapic  kvm.LAPIC
	)
	// MP state first: reading it makes KVM accept pending INIT and start-up interrupts, which
	// change the rest (Documentation/virt/kvm/api.rst §4.38).
	mp, err := c.MPState()
	if err != nil {
		return nil, err
	}
	// Events next: for an undelivered exception KVM first puts its address into CR2, or DR6, which
	// SREGS and debug registers hold (kvm_vcpu_ioctl_x86_get_vcpu_events in arch/x86/kvm/x86.c,
	// without KVM_CAP_EXCEPTION_PAYLOAD).
	if err := c.Events(&events); err != nil {
		return nil, err
	}
	regs, err := c.Regs()
	if err != nil {
		return nil, err
	}
	sregs, err := c.SRegs()
	if err != nil {
		return nil, err
	}
	for _, get := range []func() error{
		func() error { return c.XSave(&xsave) }, func() error { return c.XCRs(&xcrs) },
		func() error { return c.DebugRegs(&debug) }, func() error { return c.LAPIC(&lapic) },
	} {
		if err := get(); err != nil {
			return nil, err
		}
	}
	msrs, err := readMSRs(c, indices)
	if err != nil {
		return nil, err
	}
	khz, err := c.TSCKHz()
	if err != nil {
		return nil, err
	}
	out := slices.Concat(kvm.Bytes(&regs), kvm.Bytes(&sregs), kvm.Bytes(&xsave), kvm.Bytes(&xcrs),
		kvm.Bytes(&debug), kvm.Bytes(&events), kvm.Bytes(&lapic))
	for _, v := range []uint32{mp, khz, uint32(len(msrs))} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return appendMSRs(out, msrs), nil
}

// readMSRs reads the available MSRs. Some in the list depend on hardware or configuration, and the
// kernel stops at the first missing one.
func readMSRs(c *kvm.VCPU, indices []uint32) ([]kvm.MSR, error) {
	var out []kvm.MSR
	for rest := indices; len(rest) > 0; {
		got, err := c.MSRs(rest)
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
		rest = rest[len(got):]
		if len(rest) > 0 {
			rest = rest[1:]
		}
	}
	return slices.DeleteFunc(out, skipMSR), nil
}

// skipMSR reports whether to omit an MSR: the address of the wall clock. Writing it makes KVM fill
// in guest memory, a dirty page for each fork, and the guest rewrites the address whenever it wants
// the clock.
func skipMSR(m kvm.MSR) bool { return m.Index == msrKVMWallClock || m.Index == msrKVMWallClock2 }

func appendMSRs(b []byte, msrs []kvm.MSR) []byte {
	for _, m := range msrs {
		b = binary.LittleEndian.AppendUint32(b, m.Index)
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint64(b, m.Value)
	}
	return b
}

// vcpuState is a decoded vCPU section. It takes some 6 KiB, so it is reused.
type vcpuState struct {
	regs    kvm.Regs
	sregs   kvm.SRegs
	xsave   kvm.XSave
	xcrs    kvm.XCRs
	debug   kvm.DebugRegs
	events  kvm.VCPUEvents
	lapic   kvm.LAPIC
	mp, khz uint32
	msrs    []kvm.MSR
}

func (s *vcpuState) decode(b []byte) error {
	for _, block := range [][]byte{kvm.Bytes(&s.regs), kvm.Bytes(&s.sregs), kvm.Bytes(&s.xsave), kvm.Bytes(&s.xcrs),
		kvm.Bytes(&s.debug), kvm.Bytes(&s.events), kvm.Bytes(&s.lapic)} {
		if len(b) < len(block) {
			return fmt.Errorf("vCPU state is %d bytes short", len(block)-len(b))
		}
		b = b[copy(block, b):]
	}
	const tail, entry = 12, 16
	if len(b) < tail {
		return fmt.Errorf("vCPU state is %d bytes short", tail-len(b))
	}
	le := binary.LittleEndian
	s.mp, s.khz = le.Uint32(b), le.Uint32(b[4:])
	n := le.Uint32(b[8:])
	b = b[tail:]
	if n > maxMSRs || len(b) != int(n)*entry {
		return fmt.Errorf("vCPU state announces %d MSRs and has %d bytes for them", n, len(b))
	}
	s.msrs = make([]kvm.MSR, n)
	for i := range s.msrs {
		s.msrs[i] = kvm.MSR{Index: le.Uint32(b[i*entry:]), Value: le.Uint64(b[i*entry+8:])}
	}
	return nil
}

// load loads the state, except time (see setTime), into a fresh vCPU. The order matters: the APIC
// base is in SRegs, and the LAPIC depends on it.
func (s *vcpuState) load(c *kvm.VCPU, fresh []kvm.MSR) error {
	if err := setTSCKHz(c, s.khz); err != nil {
		return err
	}
	for _, set := range []func() error{
		func() error { return c.SetMPState(s.mp) },
		func() error { return c.SetRegs(&s.regs) },
		func() error { return c.SetSRegs(&s.sregs) },
		func() error { return c.SetXCRs(&s.xcrs) },
		func() error { return c.SetXSave(&s.xsave) },
		func() error { return c.SetDebugRegs(&s.debug) },
		func() error { return c.SetLAPIC(&s.lapic) },
		func() error { return writeMSRs(c, changed(s.msrs, fresh)) },
		func() error { return c.SetEvents(&s.events) },
	} {
		if err := set(); err != nil {
			return err
		}
	}
	return nil
}

// changed drops the MSRs of time, and the MSRs with the values of a fresh vCPU of this host.
func changed(msrs, fresh []kvm.MSR) []kvm.MSR {
	have := make(map[uint32]uint64, len(fresh))
	for _, m := range fresh {
		have[m.Index] = m.Value
	}
	var out []kvm.MSR
	for _, m := range msrs {
		if m.Index == msrTSC || m.Index == msrTSCDeadline {
			continue
		}
		if v, known := have[m.Index]; !known || v != m.Value {
			out = append(out, m)
		}
	}
	return out
}

// deadline returns the absolute time at which the vCPU's timer fires, or 0 if the timer is stopped.
func (s *vcpuState) deadline() uint64 {
	for _, m := range s.msrs {
		if m.Index == msrTSCDeadline {
			return m.Value
		}
	}
	return 0
}

func writeMSRs(c *kvm.VCPU, msrs []kvm.MSR) error {
	n, err := c.SetMSRs(msrs)
	if err == nil && n < len(msrs) {
		err = fmt.Errorf("MSR %#x of vCPU %d cannot hold %#x on this host", msrs[n].Index, c.ID(), msrs[n].Value)
	}
	return err
}

// TSC frequencies are equal if they differ by less than the accuracy of hosts' measurements (KVM's
// own tolerance is 250 ppm). A guest with kvm-clock keeps time on any frequency; only its timers
// are off by the difference. Hosts without scaling therefore accept up to a tenth.
const (
	tscSamePPM  = 250
	tscLimitPPM = 100_000
)

func setTSCKHz(c *kvm.VCPU, khz uint32) error {
	have, err := c.TSCKHz()
	if err != nil {
		return err
	}
	diff := max(have, khz) - min(have, khz)
	ppm := uint64(diff) * 1_000_000 / uint64(max(khz, 1))
	if ppm <= tscSamePPM {
		return nil
	}
	if err := c.SetTSCKHz(khz); err != nil && ppm > tscLimitPPM {
		return fmt.Errorf("the snapshot's time-stamp counter runs at %d kHz, this host's at %d kHz, and it cannot scale: %w",
			khz, have, err)
	}
	return nil
}
