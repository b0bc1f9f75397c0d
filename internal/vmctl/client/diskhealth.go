package client

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/forkd/forkd/internal/vmctl/wire"
	"github.com/forkd/forkd/internal/vmm"
)

// diskWatch is the newest that a process has told of its disks, and who wants to know.
type diskWatch struct {
	mu     sync.Mutex // guards what follows; no other lock is taken under it
	health vmm.DiskHealth
	tell   func(vmm.DiskHealth)
}

// OnDisks has f called with the health of the disks now and after each change. It must
// not wait for the VMM. Two calls may come at once: Seq says which is the newer.
func (p *Process) OnDisks(f func(vmm.DiskHealth)) { f(p.disks.watch(f)) }

func (w *diskWatch) watch(f func(vmm.DiskHealth)) (now vmm.DiskHealth) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell = f
	return w.health
}

// heard takes an event's body.
func (w *diskWatch) heard(m wire.Message) error {
	var h vmm.DiskHealth
	if err := json.Unmarshal(m.Body, &h); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	w.note(h)
	return nil
}

// note takes what came by an event or with a status, in whatever order.
func (w *diskWatch) note(h vmm.DiskHealth) {
	h = printableHealth(h)
	w.mu.Lock()
	var tell func(vmm.DiskHealth)
	if h.Seq > w.health.Seq {
		w.health, tell = h, w.tell
	}
	w.mu.Unlock()
	if tell != nil {
		tell(h)
	}
}

// printableHealth bounds the texts of an account, and keeps them from controlling a terminal.
func printableHealth(h vmm.DiskHealth) vmm.DiskHealth {
	h.Full, h.Lost = wire.Printable(h.Full), wire.Printable(h.Lost)
	return wire.ClipHealth(h)
}
