package client

import (
	"encoding/json"
	"fmt"

	"github.com/forkd/forkd/internal/vmctl/wire"
	"github.com/forkd/forkd/internal/vmm"
)

// heardDisks takes an event's body.
func (p *Process) heardDisks(m wire.Message) error {
	var h vmm.DiskHealth
	if err := json.Unmarshal(m.Body, &h); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	p.noteDisks(h)
	return nil
}

// diskWatch is the newest that a process has told, and who wants to know. Process.mu guards it.
type diskWatch struct {
	health vmm.DiskHealth
	tell   func(vmm.DiskHealth)
}

// OnDisks has f called with the health of the disks now and after each change. It must
// not wait for the VMM. Two calls may come at once: Seq says which is the newer.
func (p *Process) OnDisks(f func(vmm.DiskHealth)) {
	p.mu.Lock()
	p.disks.tell = f
	h := p.disks.health
	p.mu.Unlock()
	f(h)
}

// noteDisks takes what came by an event or with a status, in whatever order.
func (p *Process) noteDisks(h vmm.DiskHealth) {
	h.Full, h.Lost = wire.Printable(h.Full), wire.Printable(h.Lost)
	p.mu.Lock()
	var tell func(vmm.DiskHealth)
	if h.Seq > p.disks.health.Seq {
		p.disks.health, tell = h, p.disks.tell
	}
	p.mu.Unlock()
	if tell != nil {
		tell(h)
	}
}
