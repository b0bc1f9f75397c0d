package guestdump

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

const kallsyms = `ffffffff81000000 T _stext
ffffffff81000100 T native_queued_spin_lock_slowpath
ffffffff81000400 t do_lock [ext4]
ffffffff82000000 D the_lock
0000000000000000 A fixed
no symbol
`

// guest returns a state and a memory of 1 MiB with the kernel's page ffffffff82000000 at 0x5000.
func guest(t testing.TB, levels int) (state []byte, memory []byte) {
	t.Helper()
	memory = make([]byte, 1<<20)
	le, va := binary.LittleEndian, uint64(0xffffffff82000000)
	table := uint64(0x1000)
	for level := levels - 1; level >= 0; level-- {
		next := table + 0x1000
		if level == 0 {
			next = 0x8000
		}
		le.PutUint64(memory[table+(va>>(12+9*level)&0x1ff)*8:], next|entryPresent)
		table = next
	}
	le.PutUint64(memory[0x8000:], 0x00040001)         // the lock: locked, and CPU 0 waits
	le.PutUint64(memory[0x8100:], 0xffffffff81000410) // the stack
	le.PutUint64(memory[0x8108:], 42)
	le.PutUint32(memory[0x9000:], 6)
	le.PutUint64(memory[0x9010:], 77)
	regs := kvm.Regs{RIP: 0xffffffff81000168, RSP: va + 0x100, RDI: va}
	sregs := kvm.SRegs{CR3: 0x1000}
	if levels == 5 {
		sregs.CR4 = cr4LA57
	}
	var v bytes.Buffer
	for _, part := range []any{&regs, &sregs} {
		if err := binary.Write(&v, le, part); err != nil {
			t.Fatal(err)
		}
	}
	v.Write(make([]byte, offMSRs-v.Len()))
	for _, n := range []uint32{0, 2000000, 1, msrSystem, 0} {
		v.Write(le.AppendUint32(nil, n))
	}
	v.Write(le.AppendUint64(nil, 0x9001))
	var w vmstate.Writer
	w.Add("clock", 1, le.AppendUint64(nil, 1234))
	w.Add("tsc", 1, le.AppendUint64(nil, 5678))
	w.Add("vcpu.0", 1, v.Bytes())
	return w.Bytes(), memory
}

func TestAGuestThatWaitsForALock(t *testing.T) {
	symbols, err := ReadSymbols(strings.NewReader(kallsyms))
	if err != nil || len(symbols) != 4 {
		t.Fatalf("%d symbols, %v", len(symbols), err)
	}
	for _, levels := range []int{4, 5} {
		state, memory := guest(t, levels)
		d, err := Read(bytes.NewReader(state), bytes.NewReader(memory), int64(len(memory)))
		if err != nil {
			t.Fatal(err)
		}
		text := d.Format(symbols)
		for _, want := range []string{
			"clock 1234 ns", "native_queued_spin_lock_slowpath+0x68", "the_lock+0x0 holds 0x40001", "locked 1, pending 0, tail of CPU 0",
			"do_lock+0x10", "tsc 5678 at 2000000 kHz", "version 6, 77 ns",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("with %d levels the dump has no %q:\n%s", levels, want, text)
			}
		}
	}
}

// A state with invalid addresses in registers is shown as far as possible.
func TestRegistersThatPointNowhere(t *testing.T) {
	state, _ := guest(t, 4)
	d, err := Read(bytes.NewReader(state), bytes.NewReader(nil), 0)
	if err != nil || len(d.VCPUs) != 1 || len(d.VCPUs[0].Stack) != 0 || d.VCPUs[0].Clock != nil {
		t.Errorf("%+v, %v", d, err)
	}
}

func FuzzRead(f *testing.F) {
	state, memory := guest(f, 4)
	f.Add(state, memory[:0xa000], kallsyms)
	f.Fuzz(func(_ *testing.T, state, memory []byte, symbols string) {
		s, _ := ReadSymbols(strings.NewReader(symbols))
		d, err := Read(bytes.NewReader(state), bytes.NewReader(memory), int64(len(memory)))
		if err == nil {
			d.Format(s)
		}
		if v, err := decodeVCPU(state); err == nil {
			v.look(bytes.NewReader(memory), int64(len(memory)))
		}
	})
}
