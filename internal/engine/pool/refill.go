package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// Refillers is the number of shells spawned concurrently in the background.
const Refillers = 2

// refill keeps the pools full until ctx ends. It pauses while forks run.
func (p *Pools) refill(ctx context.Context) {
	const least, most = 100 * time.Millisecond, 30 * time.Second
	wait := least
	for p.cfg.AwaitForks(ctx) == nil {
		switch ok, err := p.refillOne(ctx); {
		case err != nil && ctx.Err() == nil:
			p.cfg.Log.Warn("pool: no shell", "err", err, "retry_in", wait)
			ctxsleep.For(ctx, wait)
			wait = min(2*wait, most)
		case !ok:
			select {
			case <-p.buckets.kick:
			case <-ctx.Done():
			}
		default:
			wait = least
		}
	}
}

func (p *Pools) refillOne(ctx context.Context) (ok bool, err error) {
	if p.cfg.Stopped() {
		return false, nil
	}
	key, found := p.buckets.reserveSlot()
	if !found {
		return false, nil
	}
	s, src, err := p.makeShell(ctx, key)
	if err != nil {
		p.buckets.releaseSlot(key)
		return false, err
	}
	// Before put: after it another owner may have the shell.
	s.Own(func() { p.shellEnded(s) })
	taken, kept := p.buckets.put(s, src)
	if !taken {
		s.Discard()
	}
	if src != nil && !kept {
		src.Close()
	}
	return true, nil
}

// makeShell makes a shell in the background. A shell with a tag is restored from the tag's snapshot
// as far as possible before the child is known. A plain shell prewarms itself with a restore.
func (p *Pools) makeShell(ctx context.Context, key Key) (*shell, *launch.Source, error) {
	release, err := p.cfg.Admission.Spare(admission.Shell(p.cfg.ShellMemory, key.Shape))
	if err != nil {
		return nil, nil, err
	}
	defer release()
	m, err := p.cfg.Launcher.Spawn(ctx, key.Shape, key.Owner, key.Tag == "")
	if err != nil {
		return nil, nil, err
	}
	s := &shell{m, key}
	if key.Tag == "" {
		return s, nil, nil
	}
	src, err := p.prepare(ctx, s)
	if err != nil {
		s.Discard()
		if errors.Is(err, storeerr.ErrNotRestorable) {
			p.buckets.markUnusable(key) // a fork will return the error as well
		}
		return nil, nil, fmt.Errorf("prepare a shell for %s: %w", key.Tag, err)
	}
	return s, src, nil
}

// prepare does not count as a use of the snapshot. The snapshot may be deleted meanwhile; the shell
// is then not wanted.
func (p *Pools) prepare(ctx context.Context, s *shell) (_ *launch.Source, err error) {
	src := p.buckets.sources.take(s.key.Tag) // shared with earlier shells, if there is one
	if src == nil {
		if src, err = p.cfg.Open(s.key.Tag); err != nil {
			return nil, err
		}
	}
	if KeyOf(src) != s.key {
		err = sandbox.Errorf(sandbox.ErrConflict, "", "snapshot %s was replaced", s.key.Tag)
	} else {
		err = p.cfg.Launcher.Prepare(ctx, src, s.VM)
	}
	if err != nil {
		src.Close()
		return nil, err
	}
	return src, nil
}

// shellEnded removes a shell that died in the pool. If it was taken, its new owner notices the end
// itself.
func (p *Pools) shellEnded(s *shell) {
	if p.buckets.remove(s) {
		p.cfg.Log.Warn("pool: a shell died", "reason", s.Proc.Exit().Reason)
		s.Discard()
	}
}
