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

// A pause without the memory has the guest write its files back, stops it, and makes layers of the overlay
// files that its disks are in at that moment. The VMM's disks stay as they are, so that a guest whose pause
// fails just goes on.

// openBoot opens what the sandbox boots from when it is resumed, or says why it could not boot again.
func (p *pauseOp) openBoot(ctx context.Context) (err error) {
	from := p.src.Files.Manifest
	if len(p.m.Disks.List()) == 0 {
		return noColdPause(sandbox.ErrUnsupported, p.req.SandboxID, "its image has no disk that it could write to")
	}
	if from.Image == nil {
		return noColdPause(sandbox.ErrUnsupported, p.req.SandboxID, "it comes from a bare kernel, of which nothing is kept")
	}
	image, err := p.e.cfg.Images.Image(ctx, from.Image.Name)
	if errors.Is(err, sandbox.ErrNotFound) || err == nil && image.Digest != from.Image.Digest {
		return noColdPause(sandbox.ErrConflict, p.req.SandboxID,
			"image "+from.Image.Name+", whose kernel it would boot, is gone or was built anew")
	}
	if err != nil {
		return err
	}
	p.undo.Push(func() { p.boot.Close() })
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

// standCold keeps the disks of the guest as they are now, and makes the sandbox one that is paused with them.
func (p *pauseOp) standCold(ctx context.Context) error {
	ctx, cancel := p.writeLimit(ctx)
	defer cancel()
	if err := p.flush(ctx); err != nil {
		return err
	}
	began := p.e.cfg.Now()
	if err := p.freeze(ctx); err != nil {
		return err
	}
	p.trace.mark("capture")
	failpoint.Here(failpoint.PauseFlushed)
	disks, err := p.keepDisks(ctx)
	if err != nil {
		return err
	}
	p.took.Pause = p.e.cfg.Now().Sub(began)
	p.trace.mark("write")
	failpoint.Here(failpoint.PauseKept)
	if err := p.b.KeepBoot(ctx, p.boot); err != nil {
		return fmt.Errorf("keep what it boots from: %w", err)
	}
	p.undo.Push(p.b.DropBoot)
	if err := p.b.Pause(p.m, sandboxes.PausedIn{Disks: disks, Suspend: p.suspend}); err != nil {
		return err
	}
	p.trace.mark("commit")
	return nil
}

// flushTimeout bounds how long a guest may take to write its files back, freezeTimeout until it stands with its
// disk held still: less than for how long its agent does so by itself (internal/guest/agent/fsfreeze).
const (
	flushTimeout  = time.Minute
	freezeTimeout = 20 * time.Second
)

// flush has the guest write back what was written to its files.
func (p *pauseOp) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, flushTimeout,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the guest did not write its files back within %s", flushTimeout))
	defer cancel()
	ctx, calm := p.m.WhileRoom(ctx, "sandbox "+p.req.SandboxID)
	defer calm()
	_, err := p.quiesce(ctx, &agentv1.QuiesceRequest{SyncOnly: true})
	return err
}

// freeze stops the guest while nothing writes to its disks: they have no journal, so their file systems are
// whole at such a moment only. What was flushed before makes it a short one.
func (p *pauseOp) freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freezeTimeout,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the guest did not hold its disk still within %s", freezeTimeout))
	defer cancel()
	steps, err := p.quiesce(ctx, &agentv1.QuiesceRequest{SyncOnly: true, Freeze: true})
	if err != nil {
		return err
	}
	if !slices.Contains(steps, "freeze") {
		return noColdPause(sandbox.ErrUnsupported, p.req.SandboxID,
			"its agent cannot hold the disk still: it is of an older forkd, so make the snapshot again")
	}
	if err := p.halt(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil { // then the guest may have gone on by itself
		return context.Cause(ctx)
	}
	return nil
}

// quiesce asks the agent, and returns the steps that it did.
func (p *pauseOp) quiesce(ctx context.Context, req *agentv1.QuiesceRequest) (steps []string, err error) {
	answer, err := p.m.Agent.Quiesce(ctx, req)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("have the guest write its files back: %w", err)
	}
	for _, s := range answer.GetSteps() {
		about := s.GetName() == "sync" || s.GetName() == "freeze" || s.GetName() == "thaw" // the others are for memory
		if about && s.GetError() != "" {
			return nil, fmt.Errorf("have the guest write its files back: %s: %s",
				guesttext.Of(s.GetName()), guesttext.Of(s.GetError()))
		}
		steps = append(steps, guesttext.Of(s.GetName()).String())
	}
	return steps, nil
}

// thaw lets the programs of a guest that goes on write again. It would do so by itself, later.
func (p *pauseOp) thaw(ctx context.Context) {
	if _, err := p.quiesce(ctx, &agentv1.QuiesceRequest{SyncOnly: true, Thaw: true}); err != nil {
		p.e.cfg.Logger.Warn("a sandbox writes to its disk again only in a while", "sandbox", p.req.SandboxID, "err", err)
	}
}

// halt stops the guest. Its disks must have lost nothing until now.
func (p *pauseOp) halt(ctx context.Context) error {
	if err := p.m.Proc.Pause(ctx); err != nil {
		return err
	}
	st, err := p.m.Proc.Status(ctx)
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

// keepDisks makes layers of the overlay files, which the VMM does not write to now, and holds them for the
// sandbox, beside those that it goes on with if it is not paused after all.
func (p *pauseOp) keepDisks(ctx context.Context) ([]vmproc.Disk, error) {
	lines := p.m.Disks.List() // without frozen ones: settle has seen to that
	ids := p.src.Files.Manifest.LayerIDs()
	for i := range lines {
		ids = append(ids, lines[i].Backing...)
		lines[i].Frozen = append(lines[i].Frozen, lines[i].Overlay)
	}
	if err := p.layDisks(ctx, lines, false); err != nil {
		return nil, err
	}
	var kept []vmproc.Disk
	for i, d := range p.disks {
		chain := d.Chain()
		kept = append(kept, vmproc.Disk{Index: lines[i].Index, Backing: chain.Layers})
		ids = append(ids, chain.Layers...)
	}
	return kept, p.e.sandboxes.Pin(p.b, p.m, ids)
}
