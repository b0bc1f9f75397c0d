package op

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A sandbox paused without its memory boots its image's kernel, with the root disk of its snapshot
// and its own disks. A fork of that snapshot would not work: the disk contents cached in its memory
// differ from the disk now.

// boot creates the new VM by booting it. In the journal the VM has no owner.
func (r *resumeOp) boot(ctx context.Context) error {
	src := r.f.src
	release, err := r.e.admission.VM(admission.Parent(src.Shape(), diskBytes(src.Files.Manifest)))
	if err != nil {
		return err
	}
	r.undo.Push(release)
	if err := r.bind(ctx); err != nil {
		return err
	}
	limit := r.e.cfg.BootWait
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "no ready signal after %s", limit))
	defer cancel()
	ready := newReadySignal()
	defer ready.close()
	m, err := r.e.procs.Spawn(ctx, src.Shape(), vmproc.SpawnOptions{Bounds: r.next.bounds, Ready: ready.dial})
	if err != nil {
		return err
	}
	if err := r.bootIn(ctx, m, ready); err != nil {
		r.e.cfg.Logger.Warn("a sandbox paused without memory did not boot", "sandbox", r.was.ID, "err", err,
			"console", vmproc.LastWords(filepath.Join(m.Dir, client.ConsoleLog)))
		m.Discard()
		return err
	}
	r.next.trace.mark("boot")
	failpoint.Here(failpoint.ResumeBooted)
	return nil
}

// bootIn boots the guest in a VM and waits until it is ready.
func (r *resumeOp) bootIn(ctx context.Context, m *vmproc.VM, ready *readySignal) error {
	genID, err := r.e.random(16)
	if err != nil {
		return err
	}
	ctx, calm := m.WhileRoom(ctx, "sandbox "+r.was.ID)
	defer calm()
	if err := r.start(ctx, m, [16]byte(genID)); err != nil {
		return err
	}
	select {
	case <-ready.done:
	case <-m.Proc.Done():
		return fmt.Errorf("boot: %w", m.EndError())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.next.m, err = r.e.launcher.Booted(ctx, m, [16]byte(genID), r.next.wire)
	if err != nil {
		r.next.m = nil
	}
	return err
}

// bootedAgent describes the agent of a guest that has booted: it is its image's, not its snapshot's. It returns nil if
// the agent does not answer.
func (r *resumeOp) bootedAgent(ctx context.Context) *sandbox.Agent {
	said, err := describeItself(ctx, r.next.m.Agent)
	if err != nil {
		r.e.cfg.Logger.Warn("a booted agent does not describe itself", "sandbox", r.was.ID, "err", err)
		return nil
	}
	return r.e.cfg.AgentFile.Describe(said)
}

// start passes kernel, initrd and disks to the VM.
func (r *resumeOp) start(ctx context.Context, m *vmproc.VM, genID [16]byte) error {
	c := vmm.BootConfig{Cmdline: r.f.src.Files.Manifest.Cmdline, CID: m.CID, GenID: genID}
	files, err := r.b.OpenBoot()
	if err != nil {
		return sandbox.Errorf(storeerr.ErrNotRestorable, "", "its kernel and image: %w", err)
	}
	defer files.Close()
	c.Initrd = files.Initrd
	if c.Kernel, err = r.e.openKernel(ctx, files.Kernel.Name()); err != nil {
		return err
	}
	defer c.Kernel.Close()
	disks, backing, closeDisks, err := r.ownDisks()
	if err != nil {
		return err
	}
	defer closeDisks()
	var closeOverlays func()
	if c.Disks, closeOverlays, err = m.OpenOverlays(disks, backing); err != nil {
		return err
	}
	defer closeOverlays()
	return m.Proc.Boot(ctx, c)
}

// ownDisks returns the snapshot's disks. The sandbox's own disks replace the writable ones.
func (r *resumeOp) ownDisks() (disks []vmm.Disk, backing [][]layer.ID, free func(), err error) {
	var chains []interface{ Close() error }
	free = func() {
		for _, c := range chains {
			c.Close()
		}
	}
	own := r.b.Disks().List()
	for _, d := range r.f.src.Files.Manifest.Disks {
		if d.ReadOnly {
			disks = append(disks, vmm.Disk{File: r.f.src.Files.File(d.File), ReadOnly: true})
			continue
		}
		if len(backing) == len(own) {
			free()
			return nil, nil, nil, sandbox.Errorf(storeerr.ErrNotRestorable, "", "its snapshot has more disks than it has")
		}
		ids := own[len(backing)].Backing
		chain, err := r.e.layers.Chain(ids...)
		if err != nil {
			free()
			return nil, nil, nil, sandbox.Errorf(storeerr.ErrNotRestorable, "", "its disk: %w", err)
		}
		chains = append(chains, chain)
		disks, backing = append(disks, launch.LayeredDisk(chain.Image, d.Bytes)), append(backing, ids)
	}
	return disks, backing, free, nil
}
