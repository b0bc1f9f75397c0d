package live

import (
	"os"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// gatedStart is a start that waits for a gate.
type gatedStart struct {
	entrance *startgate.Entrance
	cpus     *cpuSet
	devices  *deviceSet

	mu     sync.Mutex // guards what follows
	left   int        // vCPUs that still wait
	opened bool       // one was let through
	at     int64      // when the last of them was through

	done chan struct{} // closed when the devices run too, or never will
}

// armLocked does all of a restored machine's start that must be done before its
// guest runs: the vCPUs wait at the gate, each in its own thread. The rest
// follows when they are through: it is as much work, and would hold up those
// who are not restored yet.
func (m *Machine) armLocked(gate *os.File) error {
	entrance, err := startgate.Load(gate)
	if err != nil {
		return err
	}
	g := &gatedStart{
		entrance: entrance, cpus: &m.cpus, devices: &m.devices, left: len(m.cpus.all), done: make(chan struct{}),
	}
	m.gate, m.restored = g, false
	m.state = vmm.StateArmed
	m.cpus.start(g.pass)
	return nil
}

// follow starts what serves a guest that runs.
func (g *gatedStart) follow() {
	defer close(g.done)
	g.devices.resume()
	g.devices.serve()
}

// pass is a vCPU thread's wait. It is false if the vCPU is to be parked, or has failed.
func (g *gatedStart) pass(v *vcpu) bool {
	open := g.entrance.Wait(v.stop.Load)
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if open && !g.opened {
		// Its time goes on where it stood: set for all vCPUs by the first, just before any of them runs.
		g.opened = true
		err = g.cpus.setTime()
	}
	if g.left--; g.left == 0 {
		g.at = startgate.Now()
		if g.opened {
			g.devices.serving.Go(g.follow) // its vCPU is not parked yet, so nobody waits for serving
		} else {
			close(g.done)
		}
	}
	if err != nil {
		v.failed(v.cpu, err)
	}
	return open && err == nil
}

// wait returns when the last vCPU was through, in nanoseconds of CLOCK_MONOTONIC.
func (g *gatedStart) wait() int64 {
	<-g.done
	return g.at
}

// rouse keeps sending signals to vCPUs that may wait at the gate, until calm is
// called: the one that interrupts them may come just before they wait.
func (g *gatedStart) rouse(vcpus []*vcpu) (calm func()) {
	if g == nil {
		return func() {}
	}
	var rousing sync.WaitGroup
	done := make(chan struct{})
	rousing.Go(func() {
		again := time.NewTicker(rouseEvery)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				for _, v := range vcpus {
					kvm.Kick(v.tid)
				}
			case <-done:
				return
			}
		}
	})
	return func() { close(done); rousing.Wait() }
}

const rouseEvery = 20 * time.Millisecond

// close frees the gate of a machine whose vCPUs are parked; there may be none.
func (g *gatedStart) close() {
	if g != nil {
		g.entrance.Close()
	}
}
