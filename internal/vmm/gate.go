package vmm

import (
	"os"
	"sync"

	"github.com/forkd/forkd/internal/startgate"
	"github.com/forkd/forkd/internal/vmmctl"
)

// gatedStart is a start that waits for a gate.
type gatedStart struct {
	entrance *startgate.Entrance

	mu       sync.Mutex // guards what follows
	left     int        // vCPUs that still wait
	clockSet bool
	at       int64         // when the last of them was through
	through  chan struct{} // closed then
}

// armLocked does all of a restored machine's start but the last step: its vCPUs
// wait at the gate, each in its own thread, and enter the guest when it opens.
func (m *Machine) armLocked(gate *os.File) error {
	entrance, err := startgate.Load(gate)
	if err != nil {
		return err
	}
	g := &gatedStart{entrance: entrance, left: len(m.vcpus), through: make(chan struct{})}
	m.gate, m.restored = g, false
	m.state = vmmctl.StateArmed
	m.startLocked(func(v *vcpu) bool { return g.pass(m, v) })
	m.resumeDevices()
	signal(m.genID)
	return nil
}

// pass is a vCPU thread's wait. It is false if the vCPU is to be parked, or has failed.
func (g *gatedStart) pass(m *Machine, v *vcpu) bool {
	open := g.entrance.Wait(v.stop.Load)
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if open && !g.clockSet {
		// Its uptime goes on where it stood: set just before it runs.
		g.clockSet = true
		err = m.vm.SetClock(m.clock)
	}
	if g.left--; g.left == 0 {
		g.at = startgate.Now()
		close(g.through)
	}
	if err != nil {
		v.failed(v.cpu, err)
	}
	return open && err == nil
}

// wait returns when the last vCPU was through, in nanoseconds of CLOCK_MONOTONIC.
func (g *gatedStart) wait() int64 {
	<-g.through
	return g.at
}

// close frees the gate of a machine whose vCPUs are parked; there may be none.
func (g *gatedStart) close() {
	if g != nil {
		g.entrance.Close()
	}
}
