package client

import (
	"context"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Boot starts a kernel. It returns once the vCPUs run. The caller waits for the guest to be ready.
func (p *Process) Boot(ctx context.Context, c vmm.BootConfig) error {
	return p.ask(ctx, wire.Boot(c), nil)
}

// Restore loads a snapshot into a shell. It starts the guest unless Prepare or Gate is set.
func (p *Process) Restore(ctx context.Context, c vmm.RestoreConfig) (r vmm.RestoreResult, err error) {
	err = p.ask(ctx, wire.Restore(c), &r)
	return r, err
}

// Pause stops the vCPUs and quiesces the devices.
func (p *Process) Pause(ctx context.Context) error { return p.ask(ctx, wire.Ask(wire.OpPause), nil) }

// Resume continues a paused VM or starts a prepared one. For a VM behind a gate it waits until the
// gate has opened.
func (p *Process) Resume(ctx context.Context) (r vmm.ResumeResult, err error) {
	err = p.ask(ctx, wire.Ask(wire.OpResume), &r)
	return r, err
}

// Save writes a paused VM's memory, state and disks. The caller makes them durable.
func (p *Process) Save(ctx context.Context, c vmm.SaveConfig) (r vmm.SaveResult, err error) {
	err = p.ask(ctx, wire.Save(c), &r)
	return r, err
}

// Capture takes a running VM's memory and state at one instant. It returns when the VM runs again;
// Captured waits until the files are complete. It returns vmm.ErrPause if the pause would exceed
// the limit. The VM runs afterwards in any case, except after a successful capture with Stay.
func (p *Process) Capture(ctx context.Context, c vmm.CaptureConfig) (vmm.CaptureResult, error) {
	var r vmm.CaptureResult
	err := p.ask(ctx, wire.Capture(c), &r)
	r.Mechanism = wire.Printable(r.Mechanism)
	for i := range r.Steps {
		r.Steps[i].Name = wire.Printable(r.Steps[i].Name)
	}
	return r, err
}

// Captured waits until the last capture's files are complete. The caller makes them durable. A
// repeated call finishes the frozen overlay files left incomplete by a failed capture.
func (p *Process) Captured(ctx context.Context) error {
	return p.ask(ctx, wire.Ask(wire.OpCaptured), nil)
}

// Rebase puts another base of the same content under each disk with an overlay file, in order, and
// releases the previous base's files. The VM may run. The disks' content stays the same, also after
// an error.
func (p *Process) Rebase(ctx context.Context, bases [][]extent.Extent) error {
	return p.ask(ctx, wire.Rebase(bases), nil)
}

// WriteWorkingSet writes the pages touched by a paused VM since its restore, as a working set. If
// the VM was restored with Watch and the kernel supports it, the set has all touched pages.
// Otherwise it has only the written ones.
func (p *Process) WriteWorkingSet(ctx context.Context, f *os.File) (r vmm.WorkingSetResult, err error) {
	err = p.ask(ctx, wire.WriteWorkingSet(f), &r)
	return r, err
}

// Populate maps a working set's pages in bulk, to spare the running VM a fault on each. It silently
// skips operations unsupported by the kernel. After an error the VM still runs, unless it is gone.
func (p *Process) Populate(ctx context.Context, f *os.File) (r vmm.WorkingSetResult, err error) {
	err = p.ask(ctx, wire.Populate(f), &r)
	return r, err
}

// PopulateShell maps the part of a working set for which a prepared VM needs no memory of its own.
// A later Populate skips that part.
func PopulateShell(ctx context.Context, p *Process, f *os.File) (r vmm.WorkingSetResult, err error) {
	err = p.ask(ctx, wire.PopulateShell(f), &r)
	return r, err
}

// SetNet replaces the VM's wire.
func (p *Process) SetNet(ctx context.Context, f *os.File) error { return p.ask(ctx, wire.Net(f), nil) }

// OpenNet opens the network of a restored VM for its guest's frames. If f is not nil, it first
// becomes the VM's wire, as by SetNet. The clone must be unique by then. A booted VM's network is
// open from the start.
func (p *Process) OpenNet(ctx context.Context, f *os.File) error {
	return p.ask(ctx, wire.NetOpen(f), nil)
}

// Plug adds volumes to a restored VM, in order. They fill its free slots. It may run.
func Plug(ctx context.Context, p *Process, volumes []vmm.Disk) error {
	return p.ask(ctx, wire.Plug(volumes), nil)
}

// Status requests the VMM's report about itself.
func (p *Process) Status(ctx context.Context) (vmm.Status, error) {
	s, err := askStatus(ctx, p)
	return s.Status, err
}

func askStatus(ctx context.Context, p *Process) (s wire.Status, err error) {
	if err = p.ask(ctx, wire.Ask(wire.OpStatus), &s); err == nil {
		s.State, s.Health = vmm.State(wire.Printable(string(s.State))), printableHealth(s.Health)
		p.health.note(s.Health)
	}
	return s, err
}
