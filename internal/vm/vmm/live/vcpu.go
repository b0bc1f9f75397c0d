package live

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/kvm"
)

// vcpu is a vCPU and its thread. The thread is parked except between start and park. Only then may
// others access cpu.
type vcpu struct {
	cpu *kvm.VCPU
	vcpuEvents

	tid    int                   // thread id; set before ready is closed
	ready  chan struct{}         // closed when the thread exists
	runs   chan func(*vcpu) bool // function to call before the run; if false, the run is skipped
	parked chan struct{}         // one value per ended run
	stop   atomic.Bool           // park at the next return from the guest
	spin   spinWatch             // belongs to the thread
	thread sync.WaitGroup
}

// vcpuEvents holds callbacks of a vCPU's thread.
type vcpuEvents struct {
	// exit handles an exit of the guest. If false, the run ends.
	exit func(*kvm.VCPU) bool
	// failed reports an error of KVM_RUN. The run has ended.
	failed func(*kvm.VCPU, error)
	// hang reports that the vCPU spins in the guest's kernel at an address, or with address 0 that
	// it has stopped spinning.
	hang func(c *kvm.VCPU, address uint64)
}

func newVCPU(cpu *kvm.VCPU, on vcpuEvents) *vcpu {
	c := &vcpu{cpu: cpu, vcpuEvents: on, ready: make(chan struct{}), runs: make(chan func(*vcpu) bool, 1),
		parked: make(chan struct{}, 1), spin: spinWatch{hang: on.hang}}
	c.thread.Go(c.loop)
	<-c.ready
	return c
}

// loop is the vCPU's thread. It stays with one OS thread: KVM moves a vCPU between threads at a
// cost, and Kick needs the thread's id.
func (c *vcpu) loop() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	c.tid = unix.Gettid()
	c.spin.arm()
	close(c.ready)
	for pass := range c.runs {
		if pass(c) {
			yieldThread()
			c.run()
		}
		c.parked <- struct{}{}
	}
}

// run enters the guest until it must park or has ended. The next entry completes a port or MMIO
// access, so run checks stop only after an interrupted entry: a saved vCPU has no half-completed
// instruction.
func (c *vcpu) run() {
	for {
		err := c.cpu.Run()
		switch {
		case err == nil:
			if !c.exit(c.cpu) {
				return
			}
		case errors.Is(err, unix.EINTR):
			if c.stop.Load() {
				return
			}
			c.spin.look(c.cpu)
		case errors.Is(err, unix.EAGAIN): // the vCPU waited for its start-up interrupt
		default:
			c.failed(c.cpu, err)
			return
		}
	}
}

// start makes the thread call pass and, if it returns true, enter the guest. It does not wait for
// the thread, which must be parked.
func (c *vcpu) start(pass func(*vcpu) bool) { c.runs <- pass }

// interrupt makes the thread leave the guest and park. It does not wait.
func (c *vcpu) interrupt() {
	c.stop.Store(true)
	c.cpu.SetImmediateExit(true)
	kvm.Kick(c.tid)
}

// park waits until the thread has left the guest. The thread must have been started, and
// interrupted or ended its run by itself.
func (c *vcpu) park() {
	<-c.parked
	c.cpu.SetImmediateExit(false)
	c.stop.Store(false)
}

// close ends the parked thread and frees the vCPU.
func (c *vcpu) close() {
	close(c.runs)
	c.thread.Wait()
	c.cpu.Close()
}
