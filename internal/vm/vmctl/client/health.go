package client

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// healthWatch holds the newest health reported by a process, and its listener.
type healthWatch struct {
	mu     sync.Mutex // guards the fields below; no other lock is taken under it
	health vmm.Health
	tell   func(vmm.Health)
}

// OnHealth calls f with the VM's health now and after each change. f must not wait for the VMM. Two
// calls may run concurrently; the higher Seq is the newer health.
func (p *Process) OnHealth(f func(vmm.Health)) { f(p.health.watch(f)) }

func (w *healthWatch) watch(f func(vmm.Health)) (now vmm.Health) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell = f
	return w.health
}

// heard decodes the body of a health event.
func (w *healthWatch) heard(m wire.Message) error {
	var h vmm.Health
	if err := json.Unmarshal(m.Body, &h); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	w.note(h)
	return nil
}

// note records a health from an event or a status. They may arrive in any order.
func (w *healthWatch) note(h vmm.Health) {
	h = printableHealth(h)
	w.mu.Lock()
	var tell func(vmm.Health)
	if h.Seq > w.health.Seq {
		w.health, tell = h, w.tell
	}
	w.mu.Unlock()
	if tell != nil {
		tell(h)
	}
}

// printableHealth limits the texts of a health report, and removes control characters.
func printableHealth(h vmm.Health) vmm.Health {
	h.Full, h.Lost, h.Hang = wire.Printable(h.Full), wire.Printable(h.Lost), wire.Printable(h.Hang)
	return wire.ClipHealth(h)
}
