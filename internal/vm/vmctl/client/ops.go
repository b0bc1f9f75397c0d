package client

import (
	"context"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Boot starts a kernel. It returns once the vCPUs run; the guest's readiness is the caller's to await.
func (p *Process) Boot(ctx context.Context, c vmm.BootConfig) error {
	return p.ask(ctx, wire.Boot(c), nil)
}

// Restore loads a snapshot into a shell and, unless it is to Prepare or behind a Gate, runs it.
func (p *Process) Restore(ctx context.Context, c vmm.RestoreConfig) (r vmm.RestoreResult, err error) {
	err = p.ask(ctx, wire.Restore(c), &r)
	return r, err
}

// Pause stops the vCPUs and quiesces the devices.
func (p *Process) Pause(ctx context.Context) error { return p.ask(ctx, wire.Ask(wire.OpPause), nil) }

// Resume lets a paused VM run on, or a prepared one begin. Of one behind a gate it waits until that has opened.
func (p *Process) Resume(ctx context.Context) (r vmm.ResumeResult, err error) {
	err = p.ask(ctx, wire.Ask(wire.OpResume), &r)
	return r, err
}

// Save writes a paused VM's memory, state and disks. The caller makes them durable.
func (p *Process) Save(ctx context.Context, c vmm.SaveConfig) (r vmm.SaveResult, err error) {
	err = p.ask(ctx, wire.Save(c), &r)
	return r, err
}

// Capture takes a running VM's memory and state at one instant. It returns when
// the VM runs again; Captured waits until the files are whole. vmm.ErrPause means
// that the limit could not be kept. The VM runs on in any case, but after a capture that is to Stay.
func (p *Process) Capture(ctx context.Context, c vmm.CaptureConfig) (vmm.CaptureResult, error) {
	var r vmm.CaptureResult
	err := p.ask(ctx, wire.Capture(c), &r)
	r.Mechanism = wire.Printable(r.Mechanism)
	for i := range r.Steps {
		r.Steps[i].Name = wire.Printable(r.Steps[i].Name)
	}
	return r, err
}

// Captured waits until the last capture's files are whole. The caller makes them
// durable. Called again it ends what a capture that failed has not, of the overlay files before.
func (p *Process) Captured(ctx context.Context) error {
	return p.ask(ctx, wire.Ask(wire.OpCaptured), nil)
}

// Rebase puts another base of the same content under each disk with an overlay file,
// in order, and lets go of the files before it. The VM may run. Whether it takes
// place or not, the disks read the same.
func (p *Process) Rebase(ctx context.Context, bases [][]extent.Extent) error {
	return p.ask(ctx, wire.Rebase(bases), nil)
}

// WriteWorkingSet writes which pages a paused VM has touched since its restore, as a
// working set: all of them if it was restored with Watch and the kernel can tell,
// else those that it wrote.
func (p *Process) WriteWorkingSet(ctx context.Context, f *os.File) (r vmm.WorkingSetResult, err error) {
	err = p.ask(ctx, wire.WriteWorkingSet(f), &r)
	return r, err
}

// Populate maps a working set's pages at once, so that the running VM does not stop
// at each. What the kernel cannot do is left out silently. After an error the VM
// runs on, unless it is gone.
func (p *Process) Populate(ctx context.Context, f *os.File) (r vmm.WorkingSetResult, err error) {
	err = p.ask(ctx, wire.Populate(f), &r)
	return r, err
}

// PopulateShell maps what of a working set costs a prepared VM nothing of its own; Populate
// leaves that out then.
func PopulateShell(ctx context.Context, p *Process, f *os.File) (r vmm.WorkingSetResult, err error) {
	err = p.ask(ctx, wire.PopulateShell(f), &r)
	return r, err
}

// SetNet gives the VM another way to the network, in place of the one before.
func (p *Process) SetNet(ctx context.Context, f *os.File) error { return p.ask(ctx, wire.Net(f), nil) }

// OpenNet lets out what the guest of a restored VM sends, after it was given its way to the network
// as by SetNet, unless that is nil. It is for one that is unique; a booted one is open from its
// beginning.
func (p *Process) OpenNet(ctx context.Context, f *os.File) error {
	return p.ask(ctx, wire.NetOpen(f), nil)
}

// Status asks the VMM for its account of itself.
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
