package sandbox

import (
	"context"
	"errors"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/snapshot"
)

// sealLater has a snapshot's content digests computed in the background. When
// too many wait, the next Open finds those that were left out.
func (e *Engine) sealLater(tag string) {
	select {
	case e.sealing <- tag:
	default:
	}
}

// sealAll computes digests, one snapshot at a time. It stands back while forks
// are under way, and for everything else it runs on a thread of the lowest priority.
func (e *Engine) sealAll(ctx context.Context) {
	e.standBack("digests")
	entries, err := e.store.List()
	if err != nil {
		e.cfg.Logger.Warn("list snapshots for digests", "err", err)
	}
	for _, en := range entries {
		if en.Err == nil && !e.store.HasDigests(en.Tag) {
			e.sealLater(en.Tag)
		}
	}
	for {
		select {
		case tag := <-e.sealing:
			err := e.store.Seal(ctx, tag, e.traffic.wait)
			if err != nil {
				e.collectLater() // if it was deleted meanwhile, its layers were in use by this until now
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, snapshot.ErrNotFound) {
				e.cfg.Logger.Warn("digest snapshot", "tag", tag, "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// standBack gives the calling goroutine, for good, a thread of the lowest priority.
func (e *Engine) standBack(what string) {
	runtime.LockOSThread() // never unlocked: the thread ends with its priority
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19); err != nil {
		e.cfg.Logger.Warn("lower the priority of "+what, "err", err)
	}
}

// VerifySnapshot reads a snapshot whole and compares it with its digests.
// Damage is told in the report; it is not an error.
func (e *Engine) VerifySnapshot(ctx context.Context, tag string) (VerifyReport, error) {
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return VerifyReport{}, err
	}
	defer done()
	start := e.cfg.Now()
	r, err := e.store.Verify(ctx, tag)
	if err != nil {
		return VerifyReport{}, storeError(err)
	}
	out := VerifyReport{Tag: tag, Files: r.Files, Bytes: r.Bytes, Took: e.cfg.Now().Sub(start)}
	for _, d := range r.Damaged {
		out.Damaged = append(out.Damaged, Damage(d))
	}
	return out, nil
}
