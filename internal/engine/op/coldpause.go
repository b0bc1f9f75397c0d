package op

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A pause without memory lets the guest write its files back, stops it, and makes layers of the
// current overlay files. The VMM's disks stay unchanged, so a guest whose pause fails simply
// continues.

// openBoot opens the files the sandbox boots from on resume. It returns an error with the reason if
// the sandbox could not boot again.
func (p *pauseOp) openBoot(ctx context.Context) (err error) {
	from := p.branch.src.Files.Manifest
	if len(p.branch.b.Info().Volumes) > 0 {
		return noColdPause(sandbox.ErrUnsupported, p.branch.req.SandboxID, "it has volumes, which a boot would not mount")
	}
	if len(p.branch.m.Disks.List()) == 0 {
		return noColdPause(sandbox.ErrUnsupported, p.branch.req.SandboxID, "its image has no writable disk")
	}
	if from.Image == nil {
		return noColdPause(sandbox.ErrUnsupported, p.branch.req.SandboxID,
			"it was booted from a kernel file, which is not stored")
	}
	image, err := p.branch.e.cfg.Images.Image(ctx, from.Image.Name)
	if errors.Is(err, sandbox.ErrNotFound) || err == nil && image.Digest != from.Image.Digest {
		return noColdPause(sandbox.ErrConflict, p.branch.req.SandboxID,
			"image "+from.Image.Name+", whose kernel it would boot, is gone or was built anew")
	}
	if err != nil {
		return err
	}
	p.branch.undo.Push(func() { p.boot.Close() })
	if p.boot.Kernel, err = os.Open(image.Kernel); err != nil {
		return err
	}
	if image.Initrd != "" {
		p.boot.Initrd, err = os.Open(image.Initrd)
	}
	return err
}

func noColdPause(kind error, id, why string) error {
	return sandbox.Errorf(kind, sandbox.ReasonColdPause, "sandbox %s cannot be paused with its disk alone: %s", id, why)
}

// standCold saves the guest's current disks and marks the sandbox as paused with them.
func (p *pauseOp) standCold(ctx context.Context) error {
	ctx, cancel := p.branch.writeLimit(ctx)
	defer cancel()
	if err := p.flush(ctx); err != nil {
		return err
	}
	began := p.branch.e.cfg.Now()
	if err := p.freeze(ctx); err != nil {
		return err
	}
	p.branch.trace.mark("capture")
	failpoint.Here(failpoint.PauseFlushed)
	disks, err := p.keepDisks(ctx)
	if err != nil {
		return err
	}
	p.branch.took.Pause = p.branch.e.cfg.Now().Sub(began)
	p.branch.trace.mark("write")
	failpoint.Here(failpoint.PauseKept)
	if err := p.branch.b.KeepBoot(ctx, p.boot); err != nil {
		return fmt.Errorf("keep its kernel and image: %w", err)
	}
	p.branch.undo.Push(p.branch.b.DropBoot)
	if err := p.branch.b.Pause(p.branch.m, sandboxes.PausedIn{Disks: disks, Suspend: p.suspend}); err != nil {
		return err
	}
	p.branch.trace.mark("commit")
	return nil
}

// flushTimeout bounds the guest's write-back of its files. freezeTimeout bounds the time until the
// guest is stopped with frozen file systems. It is shorter than the time after which the agent
// thaws them itself (internal/guest/agent/fsfreeze).
const (
	flushTimeout  = time.Minute
	freezeTimeout = 20 * time.Second
)

// flush makes the guest write back its dirty files.
func (p *pauseOp) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, flushTimeout,
		sandbox.Errorf(sandbox.ErrTimeout, "", "syncing the guest's file systems timed out after %s", flushTimeout))
	defer cancel()
	ctx, calm := p.branch.m.WhileRoom(ctx, "sandbox "+p.branch.req.SandboxID)
	defer calm()
	_, err := p.quiesce(ctx, &agentv1.QuiesceRequest{SyncOnly: true})
	return err
}

// freeze stops the guest with its file systems frozen. They have no journal, so they are consistent
// only at such a moment. The preceding flush keeps it short.
func (p *pauseOp) freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freezeTimeout,
		sandbox.Errorf(sandbox.ErrTimeout, "", "freezing the guest's file system timed out after %s", freezeTimeout))
	defer cancel()
	steps, err := p.quiesce(ctx, &agentv1.QuiesceRequest{SyncOnly: true, Freeze: true})
	if err != nil {
		return err
	}
	if !slices.Contains(steps, "freeze") {
		return noColdPause(sandbox.ErrUnsupported, p.branch.req.SandboxID,
			"its agent cannot hold the disk still: it is of an older forkd, so make the snapshot again")
	}
	if err := p.halt(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil { // then the guest may have thawed by itself
		return context.Cause(ctx)
	}
	return nil
}

// quiesce sends a quiesce request to the agent and returns the steps it did.
func (p *pauseOp) quiesce(ctx context.Context, req *agentv1.QuiesceRequest) (steps []string, err error) {
	answer, err := p.branch.m.Agent.Quiesce(ctx, req)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("have the guest write its files back: %w", err)
	}
	if !req.GetThaw() {
		p.branch.told = append(p.branch.told, reported(answer.GetSteps())...)
	}
	for _, s := range answer.GetSteps() {
		about := s.GetName() == "sync" || s.GetName() == "freeze" || s.GetName() == "thaw" // the others concern memory
		if about && s.GetError() != "" {
			return nil, fmt.Errorf("have the guest write its files back: %s: %s",
				guesttext.Of(s.GetName()), guesttext.Of(s.GetError()))
		}
		steps = append(steps, guesttext.Of(s.GetName()).String())
	}
	return steps, nil
}

// thaw lets the programs of a guest that continues write again. Without it the guest would thaw by
// itself, later.
func (p *pauseOp) thaw(ctx context.Context) {
	if _, err := p.quiesce(ctx, &agentv1.QuiesceRequest{SyncOnly: true, Thaw: true}); err != nil {
		p.branch.e.cfg.Logger.Warn("a sandbox writes to its disk again only in a while",
			"sandbox", p.branch.req.SandboxID, "err", err)
	}
}

// halt stops the guest. It returns an error if the disks have lost writes.
func (p *pauseOp) halt(ctx context.Context) error {
	if err := p.branch.m.Proc.Pause(ctx); err != nil {
		return err
	}
	st, err := p.branch.m.Proc.Status(ctx)
	switch {
	case err != nil:
		return err
	case st.State != vmm.StatePaused:
		return fmt.Errorf("the guest is %s", st.State)
	case st.Health.Lost != "":
		return fmt.Errorf("%w: %s", vmm.ErrLost, st.Health.Lost)
	}
	return nil
}

// keepDisks makes layers of the overlay files, which the VMM does not write to now. It pins them
// for the sandbox, together with the layers the sandbox continues on if the pause fails.
func (p *pauseOp) keepDisks(ctx context.Context) ([]vmproc.Disk, error) {
	lines := p.branch.m.Disks.List() // without frozen files: settle has made layers of them
	ids := p.branch.src.Files.Manifest.LayerIDs()
	for i := range lines {
		ids = append(ids, lines[i].Backing...)
		lines[i].Frozen = append(lines[i].Frozen, lines[i].Overlay)
	}
	if err := p.branch.layDisks(ctx, lines, false); err != nil {
		return nil, err
	}
	var kept []vmproc.Disk
	for i, d := range p.branch.disks {
		chain := d.Chain()
		kept = append(kept, vmproc.Disk{Index: lines[i].Index, Backing: chain.Layers})
		ids = append(ids, chain.Layers...)
	}
	return kept, p.branch.e.sandboxes.Pin(p.branch.b, p.branch.m, ids)
}
