package floor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/kvm"
)

// VMsConfig describes the N VMs to make, each as large as a snapshot's VM.
type VMsConfig struct {
	KVM         *kvm.System
	N           int
	MemoryBytes int64
	Memory      *os.File // mapped MAP_PRIVATE by all; if nil, anonymous memory
}

// VMs makes N VMs with only the steps demanded by the kernel: create the VM and the interrupt
// controllers, map memory, set its slots, create one vCPU. Each VM runs to its first exit. VMs uses
// as many threads as there are CPUs. It returns the wall time without the teardown.
func VMs(c VMsConfig) (time.Duration, error) {
	var all undo.Stack
	defer all.Run()
	var mu sync.Mutex
	var errs []error
	work := make(chan struct{}, c.N)
	for range c.N {
		work <- struct{}{}
	}
	close(work)
	start := time.Now()
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for range work {
				free, err := makeVM(c)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					all.Push(free)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return time.Since(start), errors.Join(errs...)
}

// guestCode is `out 0x10, al; hlt`, at the address where the vCPU starts.
var guestCode = []byte{0xe6, 0x10, 0xf4}

const guestEntry = 0x1000

func makeVM(c VMsConfig) (free func(), err error) {
	var u undo.Stack
	defer u.OnError(&err)
	vm, err := c.KVM.CreateVM()
	if err != nil {
		return nil, err
	}
	u.Push(func() { vm.Close() })
	if err := vm.SetTSSAddr(boot.TSSAddr); err != nil {
		return nil, err
	}
	if err := vm.CreateIRQChip(); err != nil {
		return nil, err
	}
	mem, err := mapMemory(c, vm, &u)
	if err != nil {
		return nil, err
	}
	cpu, err := vm.CreateVCPU(0)
	if err != nil {
		return nil, err
	}
	u.Push(func() { cpu.Close() })
	if err := mem.WriteAt(guestCode, guestEntry); err != nil {
		return nil, err
	}
	if err := runToFirstExit(cpu); err != nil {
		return nil, err
	}
	return func() { cpu.Close(); vm.Close(); mem.Close() }, nil
}

func mapMemory(c VMsConfig, vm *kvm.VM, u *undo.Stack) (*guestmem.Map, error) {
	mem, err := guestmem.Reserve(c.MemoryBytes)
	if err != nil {
		return nil, err
	}
	u.Push(func() { mem.Close() })
	if c.Memory == nil {
		err = mem.MapAnonymous()
	} else {
		err = mem.MapFile(0, c.MemoryBytes, int(c.Memory.Fd()), 0)
	}
	if err != nil {
		return nil, err
	}
	for i, r := range mem.Regions() {
		if err := vm.SetMemory(uint32(i), r.GPA, uint64(r.Size), mem.HostAddr(r)); err != nil {
			return nil, err
		}
	}
	return mem, nil
}

func runToFirstExit(cpu *kvm.VCPU) error {
	sr, err := cpu.SRegs()
	if err != nil {
		return err
	}
	sr.CS.Base, sr.CS.Selector = 0, 0
	if err := cpu.SetSRegs(&sr); err != nil {
		return err
	}
	if err := cpu.SetRegs(&kvm.Regs{RIP: guestEntry, RFLAGS: 2}); err != nil {
		return err
	}
	for {
		err := cpu.Run()
		if err == nil {
			break
		}
		if !isInterrupted(err) {
			return fmt.Errorf("run the floor's vCPU: %w", err)
		}
	}
	if r := cpu.ExitReason(); r != kvm.ExitIO {
		return fmt.Errorf("the floor's vCPU left the guest for reason %d, want %d", r, kvm.ExitIO)
	}
	return nil
}

// isInterrupted reports a signal of the Go runtime. The vCPU can run again after it.
func isInterrupted(err error) bool { return errors.Is(err, unix.EINTR) }
