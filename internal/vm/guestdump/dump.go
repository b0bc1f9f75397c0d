package guestdump

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// Dump is the state of a guest.
type Dump struct {
	Clock uint64 // the paravirtual clock in ns
	VCPUs []VCPU // at most maxVCPUs, by number
}

// VCPU is the state of one vCPU.
type VCPU struct {
	Regs  kvm.Regs          // with RSP, where Stack begins, and RDI, the address of Lock
	SRegs kvm.SRegs         // with CR3 and CR4, which locate the page tables
	MP    uint32            // 0 if it runs, 3 if it is halted (KVM_MP_STATE_*)
	TSC   uint64            // time-stamp counter; 0 if the state has none
	KHz   uint32            // frequency of the TSC
	MSRs  map[uint32]uint64 // values by register address
	Stack []Word            // readable words from RSP upwards, at most stackWords
	// Lock is the value at the address in RDI, the argument of functions that take a lock.
	Lock  uint64
	Clock *PVClock // nil if the guest has none
}

// Word is a word of the stack.
type Word struct {
	At, Value uint64 // guest-virtual address, and the 8 bytes there
}

// PVClock is KVM's last time report to the guest (struct pvclock_vcpu_time_info).
type PVClock struct {
	Version   uint32 // odd during an update
	TSC       uint64 // TSC at the time SystemNS
	SystemNS  uint64 // the paravirtual clock at TSC, in ns
	Mul       uint32 // TSC ticks to ns: shift by Shift, multiply by Mul, divide by 2^32
	Shift     int8   // left shift; if negative, right shift by -Shift
	Flags     uint8  // PVCLOCK_*
	HasPaused bool   // PVCLOCK_GUEST_STOPPED, which the guest clears
}

// Limits and MSRs of the sections of a state (docs/inside/formats/vmstate.md).
const (
	maxVCPUs    = 256
	stackWords  = 256
	offMSRs     = 144 + 312 + 4096 + 392 + 128 + 64 + 1024
	maxMSRs     = 4096
	msrDeadline = 0x6e0
	msrSystem   = 0x4b564d01 // MSR_KVM_SYSTEM_TIME_NEW
	cr4LA57     = 1 << 12
)

// Read decodes a state, with the memory image of the same snapshot.
func Read(state io.Reader, image io.ReaderAt, size int64) (d Dump, err error) {
	st, err := vmstate.Read(state)
	if err != nil {
		return d, err
	}
	clock, err := st.Section("clock", 1)
	if err != nil || len(clock) < 8 {
		return d, errors.Join(err, errors.New("the state has no clock"))
	}
	d.Clock = binary.LittleEndian.Uint64(clock)
	tsc, err := st.Section("tsc", 1)
	if err != nil {
		return d, err
	}
	for i := 0; i < maxVCPUs && st.Has(fmt.Sprintf("vcpu.%d", i)); i++ {
		b, err := st.Section(fmt.Sprintf("vcpu.%d", i), 1)
		if err != nil {
			return d, err
		}
		v, err := decodeVCPU(b)
		if err != nil {
			return d, fmt.Errorf("vCPU %d: %w", i, err)
		}
		if len(tsc) >= 8*(i+1) {
			v.TSC = binary.LittleEndian.Uint64(tsc[8*i:])
		}
		v.look(image, size)
		d.VCPUs = append(d.VCPUs, v)
	}
	return d, nil
}

func decodeVCPU(b []byte) (v VCPU, err error) {
	r := bytes.NewReader(b)
	for _, part := range []any{&v.Regs, &v.SRegs} {
		if err := binary.Read(r, binary.LittleEndian, part); err != nil {
			return v, err
		}
	}
	if len(b) < offMSRs+12 {
		return v, io.ErrUnexpectedEOF
	}
	le, tail := binary.LittleEndian, b[offMSRs:]
	v.MP, v.KHz = le.Uint32(tail), le.Uint32(tail[4:])
	n := le.Uint32(tail[8:])
	if tail = tail[12:]; n > maxMSRs || len(tail) < int(n)*16 {
		return v, fmt.Errorf("%d MSRs in %d bytes", n, len(tail))
	}
	v.MSRs = make(map[uint32]uint64, n)
	for ; n > 0; n, tail = n-1, tail[16:] {
		v.MSRs[le.Uint32(tail)] = le.Uint64(tail[8:])
	}
	return v, nil
}

// look reads the memory that the registers point to. A guest may set them to any value. Unreadable
// memory is omitted.
func (v *VCPU) look(image io.ReaderAt, size int64) {
	m := &memory{image: image, regions: guestmem.Layout(size), cr3: v.SRegs.CR3, levels: 4}
	if v.SRegs.CR4&cr4LA57 != 0 {
		m.levels = 5
	}
	for at := v.Regs.RSP; len(v.Stack) < stackWords && at >= v.Regs.RSP; at += 8 {
		w, err := m.word(at)
		if err != nil {
			break
		}
		v.Stack = append(v.Stack, Word{at, w})
	}
	v.Lock, _ = m.word(v.Regs.RDI)
	if at := v.MSRs[msrSystem]; at&1 != 0 {
		var b [32]byte
		if m.physical(b[:], at&^1) == nil {
			v.Clock = decodeClock(b[:])
		}
	}
}

func decodeClock(b []byte) *PVClock {
	le := binary.LittleEndian
	return &PVClock{Version: le.Uint32(b), TSC: le.Uint64(b[8:]), SystemNS: le.Uint64(b[16:]), Mul: le.Uint32(b[24:]),
		Shift: int8(b[28]), Flags: b[29], HasPaused: b[29]&2 != 0}
}

// Format returns a readable dump, with the available symbols.
func (d Dump) Format(s Symbols) string {
	var b strings.Builder
	fmt.Fprintf(&b, "clock %d ns\n", d.Clock)
	for i, v := range d.VCPUs {
		v.format(&b, i, s)
	}
	return b.String()
}

// rflagsIF is the interrupt flag.
const rflagsIF = 1 << 9

func (v VCPU) format(b *strings.Builder, i int, s Symbols) {
	r, sr := v.Regs, v.SRegs
	fmt.Fprintf(b, "vCPU %d: MP state %d, CPL %d, interrupts %t, at %s\n", i, v.MP, sr.SS.DPL,
		r.RFLAGS&rflagsIF != 0, s.Name(r.RIP))
	for _, line := range [][]any{
		{"rax", r.RAX, "rbx", r.RBX, "rcx", r.RCX, "rdx", r.RDX}, {"rsi", r.RSI, "rdi", r.RDI, "rsp", r.RSP, "rbp", r.RBP},
		{"r8", r.R8, "r9", r.R9, "r10", r.R10, "r11", r.R11}, {"r12", r.R12, "r13", r.R13, "r14", r.R14, "r15", r.R15},
		{"cr0", sr.CR0, "cr2", sr.CR2, "cr3", sr.CR3, "cr4", sr.CR4},
		{"efer", sr.EFER, "fs", sr.FS.Base, "gs", sr.GS.Base, "rflags", r.RFLAGS},
	} {
		for j := 0; j < len(line); j += 2 {
			fmt.Fprintf(b, "  %-6s %016x", line[j], line[j+1])
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "  tsc %d at %d kHz, deadline %d\n", v.TSC, v.KHz, v.MSRs[msrDeadline])
	if c := v.Clock; c != nil {
		fmt.Fprintf(b, "  kvm-clock: version %d, %d ns at tsc %d, mul %d, shift %d, flags %#x\n",
			c.Version, c.SystemNS, c.TSC, c.Mul, c.Shift, c.Flags)
	}
	fmt.Fprintf(b, "  rdi %s holds %#x: as a queued spin lock: locked %d, pending %d, tail of CPU %d\n",
		s.Name(r.RDI), v.Lock, v.Lock&0xff, v.Lock>>8&0xff, int(v.Lock>>18&0x3fff)-1)
	for i, w := range v.Stack {
		if !s.code(w.Value) {
			continue
		}
		fmt.Fprintf(b, "  stack %016x: %s\n", w.At, s.Name(w.Value))
		if f, ok := v.interrupted(i, s); ok {
			fmt.Fprintf(b, "    interrupted %s, interrupts %t, flags %#x\n", s.Name(f.rip), f.flags&rflagsIF != 0, f.flags)
		}
	}
}

// frame is the saved state of code that an interrupt or a fault broke into.
type frame struct{ rip, flags uint64 }

// Offsets in words from the return address into an entry stub to its struct pt_regs (kernel,
// arch/x86/include/asm/ptrace.h): 15 registers and orig_ax precede the frame that the CPU pushed.
const (
	frameRIP   = 1 + 16
	frameFlags = frameRIP + 2
)

// interrupted returns the frame below the return address at index i of the stack, if that leads
// into an entry stub of the kernel. An interrupt with a cleared interrupt flag in its frame cannot
// occur on a sound CPU.
func (v VCPU) interrupted(i int, s Symbols) (frame, bool) {
	e, ok := s.find(v.Stack[i].Value)
	if !ok || !strings.HasPrefix(e.name, "asm_") || i+frameFlags >= len(v.Stack) {
		return frame{}, false
	}
	return frame{v.Stack[i+frameRIP].Value, v.Stack[i+frameFlags].Value}, true
}
