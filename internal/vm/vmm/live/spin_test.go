package live

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// looks feeds a watch one set of registers per period, and returns how often a hang began and
// ended.
func looks(s *spinWatch, from, n int, at func(i int) kvm.Regs) (began, ended int) {
	for i := from; i < from+n; i++ {
		switch s.see(at(i), time.Duration(i)*spinPeriod) {
		case spinBegan:
			began++
		case spinEnded:
			ended++
		}
	}
	return began, ended
}

func TestWhatIsAHang(t *testing.T) {
	const kernel = 0xffffffff81c3b4e0
	lock := func(i int) kvm.Regs {
		return kvm.Regs{RIP: kernel + uint64(i%3), RSP: 0xffffc90000003ef8, RDI: 7, RAX: uint64(i)}
	}
	for name, c := range map[string]struct {
		at   func(i int) kvm.Regs
		want int
	}{
		"a spin lock": {lock, 1},
		"with interrupts": {func(i int) kvm.Regs {
			if i%4 == 3 {
				return kvm.Regs{RIP: kernel + 0x1000, RSP: uint64(i)}
			}
			return lock(i)
		}, 1},
		"a program's loop":       {func(int) kvm.Regs { return kvm.Regs{RIP: 0x401000, RSP: 1} }, 0},
		"a kernel that copies":   {func(i int) kvm.Regs { r := lock(0); r.RDI = uint64(i); return r }, 0},
		"a kernel that works":    {func(i int) kvm.Regs { r := lock(0); r.RIP += uint64(i) * 100; return r }, 0},
		"a call again and again": {func(i int) kvm.Regs { r := lock(0); r.RSP -= uint64(i%2) * 8; return r }, 0},
	} {
		began, ended := looks(&spinWatch{}, 0, 100, c.at)
		if began != c.want || ended != 0 {
			t.Errorf("%s: %d hangs began and %d ended, want %d and 0", name, began, ended, c.want)
		}
	}
	s := &spinWatch{}
	if began, _ := looks(s, 0, 10, lock); began != 0 {
		t.Error("a hang was reported too early")
	}
	if began, _ := looks(s, 10, 20, lock); began != 1 {
		t.Errorf("%d hangs began", began)
	}
	if _, ended := looks(s, 30, 20, func(i int) kvm.Regs { return kvm.Regs{RIP: 0x401000} }); ended != 1 {
		t.Errorf("the hang ended %d times", ended)
	}
}

// A vCPU that spins in the upper half is reported. The report stays over a pause, and ends with the
// spinning.
func TestAVCPUThatSpinsIsReported(t *testing.T) {
	kvmtest.Require(t)
	s := newScript()
	s.finish()
	v := bootBare(t, s, nil)
	v.waitBeat()
	const pml4, high = 0x9000, 0xffff800000000000
	move := func(by uint64) {
		t.Helper()
		checkOK(t, v.Pause())
		cpu := v.cpus.all[0]
		cpu.spin.limit = spinPeriod
		regs, err := cpu.cpu.Regs()
		checkOK(t, err)
		regs.RIP += by
		checkOK(t, cpu.cpu.SetRegs(&regs))
		_, err = v.Resume()
		checkOK(t, err)
	}
	first := make([]byte, 8) // the lower half serves as the upper one as well
	checkOK(t, v.mem.ReadAt(first, pml4))
	if binary.LittleEndian.Uint64(first)&1 == 0 {
		t.Fatal("the first entry of the page tables is not present")
	}
	checkOK(t, v.mem.WriteAt(first, pml4+256*8))
	if got := v.Status().Health.Hang; got != "" {
		t.Fatalf("a program that counts is said to hang: %s", got)
	}
	move(high)
	v.until("the report of a hang", func() bool { return v.Status().Health.Hang != "" })
	if got := v.Status().Health.Hang; !strings.HasPrefix(got, "vCPU 0 spins at 0xffff8000001") {
		t.Errorf("the report is %q", got)
	}
	checkOK(t, v.Pause())
	if got := v.Status(); got.State != vmm.StatePaused || got.Health.Hang == "" {
		t.Errorf("after a pause it is %+v", got)
	}
	move(-high & (1<<64 - 1))
	v.until("the end of the report", func() bool { return v.Status().Health.Hang == "" })
	v.waitBeat()
}
