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

	mu     sync.Mutex // guards the fields below
	left   int        // vCPUs still waiting
	opened bool       // one vCPU has passed
	at     int64      // time at which the last vCPU passed

	done chan struct{} // closed when the devices run too, or never will
}

// armLocked does the part of a restored machine's start before its guest runs: each vCPU waits at
// the gate in its own thread. The rest follows when they have passed. It is as much work, and would
// delay other restores.
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

// follow starts the devices for a running guest.
func (g *gatedStart) follow() {
	defer close(g.done)
	g.devices.resume()
	g.devices.serve()
}

// pass waits in a vCPU's thread for the gate. It is false if the vCPU must park or has failed.
func (g *gatedStart) pass(v *vcpu) bool {
	open := g.entrance.Wait(v.stop.Load)
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if open && !g.opened {
		// The clock resumes from its saved value. The first vCPU sets it for all, just before any
		// of them runs.
		g.opened = true
		err = g.cpus.setTime()
	}
	if g.left--; g.left == 0 {
		g.at = startgate.Now()
		if g.opened {
			g.devices.serving.Go(g.follow) // the vCPU is not parked yet, so Close is not waiting for serving
		} else {
			close(g.done)
		}
	}
	if err != nil {
		v.failed(v.cpu, err)
	}
	return open && err == nil
}

// wait blocks until the last vCPU has passed, and returns that time in nanoseconds of
// CLOCK_MONOTONIC.
func (g *gatedStart) wait() int64 {
	<-g.done
	return g.at
}

// rouse repeatedly signals the vCPUs at the gate, until calm is called. A single interrupt may
// arrive just before a vCPU begins to wait.
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

// close frees the gate, if any. The machine's vCPUs are parked.
func (g *gatedStart) close() {
	if g != nil {
		g.entrance.Close()
	}
}
