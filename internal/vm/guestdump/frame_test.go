package guestdump

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/vm/kvm"
)

const hungSymbols = `ffffffff81130fd0 t __update_load_avg_cfs_rq
ffffffff811138a0 T try_to_wake_up
ffffffff81c92500 T _raw_spin_lock
ffffffff81e015f0 T asm_sysvec_apic_timer_interrupt
ffffffff81e01630 T asm_sysvec_x86_platform_ipi
`

// The stack is that of a guest that hung on an emulated CPU. The timer interrupt came while the
// interrupted code, which holds the lock of the run queue, had interrupts disabled.
func TestAnInterruptThatCouldNotBe(t *testing.T) {
	f, err := os.Open("testdata/hung-stack.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v := VCPU{Regs: kvm.Regs{RIP: 0xffffffff81c92509}}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var w Word
		if _, err := fmt.Sscanf(lines.Text(), "%x %x", &w.At, &w.Value); err == nil {
			v.Stack = append(v.Stack, w)
		}
	}
	symbols, err := ReadSymbols(strings.NewReader(hungSymbols))
	if err != nil {
		t.Fatal(err)
	}
	got := Dump{VCPUs: []VCPU{v}}.Format(symbols)
	const want = "interrupted 0xffffffff81130ffd __update_load_avg_cfs_rq+0x2d, interrupts false, flags 0x10006"
	if !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A stack that ends in the middle of a frame has none.
func TestAFrameThatIsCut(t *testing.T) {
	symbols, err := ReadSymbols(strings.NewReader(hungSymbols))
	if err != nil {
		t.Fatal(err)
	}
	for n := range frameFlags + 1 {
		v := VCPU{Stack: make([]Word, n+1)}
		v.Stack[0].Value = 0xffffffff81e0160a
		if _, ok := v.interrupted(0, symbols); ok != (n == frameFlags) {
			t.Errorf("%d words after the return address: %t", n, ok)
		}
	}
}
