package hostcap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/kvm"
)

const (
	rounds    = 3
	roundTime = 20 * time.Millisecond
	// hangLimit is the time after which a vCPU that does not react to a kick is abandoned.
	hangLimit = 3 * time.Second
)

// Guest-physical layout of the temporary VM: page tables that identity-map the first 2 MiB, and the code.
const (
	guestMemory = 1 << 16
	pml4At      = 0x1000
	pdptAt      = 0x2000
	pdAt        = 0x3000
	codeAt      = 0x4000
	presentRW   = 0x3
	hugePage    = 0x80
)

// loop counts rcx down: two instructions a round, in ring 0.
//
//	48 ff c9   dec rcx
//	75 fb      jnz -5
//	f4         hlt
var loop = []byte{0x48, 0xff, 0xc9, 0x75, 0xfb, 0xf4}

const instructionsPerRound = 2

// measureSpeed runs the loop in a temporary VM. If KVM hangs, the caller loses hangLimit and a thread, but not
// the process.
func measureSpeed(ctx context.Context) (float64, time.Time, error) {
	type result struct {
		speed float64
		err   error
	}
	done := make(chan result, 1)
	go func() {
		speed, err := runLoop()
		done <- result{speed, err}
	}()
	select {
	case r := <-done:
		return r.speed, time.Now(), r.err
	case <-ctx.Done():
		return 0, time.Time{}, context.Cause(ctx)
	case <-time.After(hangLimit):
		return 0, time.Time{}, fmt.Errorf("no answer within %s", hangLimit)
	}
}

func runLoop() (float64, error) {
	sys, err := kvm.Open(device)
	if err != nil {
		return 0, err
	}
	defer sys.Close()
	vm, err := sys.CreateVM()
	if err != nil {
		return 0, err
	}
	defer vm.Close()
	mem, err := unix.Mmap(-1, 0, guestMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, fmt.Errorf("map guest memory: %w", err)
	}
	defer func() { _ = unix.Munmap(mem) }() // after the vCPU is closed
	writeGuest(mem)
	if err := vm.SetMemory(0, 0, guestMemory, addressOf(mem)); err != nil {
		return 0, err
	}
	// The vCPU belongs to one thread from its creation on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpu, err := vm.CreateVCPU(0)
	if err != nil {
		return 0, err
	}
	defer cpu.Close()
	return bestRound(cpu)
}

// writeGuest writes the page tables and the code.
func writeGuest(mem []byte) {
	le := binary.LittleEndian
	le.PutUint64(mem[pml4At:], pdptAt|presentRW)
	le.PutUint64(mem[pdptAt:], pdAt|presentRW)
	le.PutUint64(mem[pdAt:], presentRW|hugePage)
	copy(mem[codeAt:], loop)
}

// bestRound measures several times, because the first runs warm caches and another program may use the CPU.
func bestRound(cpu *kvm.VCPU) (float64, error) {
	if err := enterLongMode(cpu); err != nil {
		return 0, err
	}
	var best float64
	for range rounds {
		speed, err := round(cpu)
		if err != nil {
			return 0, err
		}
		best = max(best, speed)
	}
	return best, nil
}

// enterLongMode sets up flat 64-bit ring 0 with paging.
func enterLongMode(cpu *kvm.VCPU) error {
	s, err := cpu.SRegs()
	if err != nil {
		return err
	}
	const (
		cr0PE, cr0PG     = 1 << 0, 1 << 31
		cr4PAE           = 1 << 5
		eferLME, eferLMA = 1 << 8, 1 << 10
	)
	s.CR0, s.CR3, s.CR4, s.EFER = cr0PE|cr0PG, pml4At, cr4PAE, eferLME|eferLMA
	flat := kvm.Segment{Limit: 0xffffffff, Selector: 0x10, Type: 3, Present: 1, S: 1, G: 1, DB: 1}
	s.DS, s.ES, s.FS, s.GS, s.SS = flat, flat, flat, flat, flat
	flat.Selector, flat.Type, flat.L, flat.DB = 0x8, 11, 1, 0
	s.CS = flat
	return cpu.SetSRegs(&s)
}

// round runs the loop for roundTime and returns instructions per second of CPU time, so that a busy host does not
// look slow.
func round(cpu *kvm.VCPU) (float64, error) {
	const start = 1 << 62
	if err := cpu.SetRegs(&kvm.Regs{RCX: start, RIP: codeAt, RFLAGS: 2}); err != nil {
		return 0, err
	}
	stop := stopAfter(cpu, unix.Gettid(), roundTime)
	before := threadTime()
	err := cpu.Run()
	took := threadTime() - before
	stop()
	if err != nil && !errors.Is(err, unix.EINTR) {
		return 0, err
	}
	if err == nil && cpu.ExitReason() != kvm.ExitIntr {
		return 0, fmt.Errorf("the loop ended with exit reason %d", cpu.ExitReason())
	}
	regs, err := cpu.Regs()
	if err != nil {
		return 0, err
	}
	if took <= 0 || regs.RCX > start {
		return 0, errors.New("the loop left no sensible count")
	}
	return float64(start-regs.RCX) * instructionsPerRound / took.Seconds(), nil
}

// stopAfter kicks the vCPU out of Run after d. The returned function stops the kicking and waits for it.
func stopAfter(cpu *kvm.VCPU, tid int, d time.Duration) func() {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-quit:
			return
		case <-time.After(d):
		}
		cpu.SetImmediateExit(true)
		if err := kvm.Kick(tid); err != nil {
			return // measureSpeed's time limit applies
		}
	}()
	return func() {
		close(quit)
		<-done
		cpu.SetImmediateExit(false)
	}
}

func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
