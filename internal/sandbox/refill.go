package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/startgate"
	"github.com/forkd/forkd/internal/vmmctl"
)

// refillers is how many shells are spawned at once in the background.
const refillers = 2

// MaxPool is the largest pool of one tag.
const MaxPool = 2000

// SetPool sets how many shells are kept ready for a snapshot. Filling goes on in
// the background. The size is remembered with the store.
func (e *Engine) SetPool(ctx context.Context, tag string, size int) error {
	_, done, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if size < 0 || size > MaxPool {
		return problem(ErrInvalid, "", "pool size is %d, want 0 to %d", size, MaxPool)
	}
	entry, err := e.store.Get(tag)
	if err != nil {
		return storeError(err)
	}
	e.discardAll(e.pools.set(poolKey{entry.Manifest.Shape, tag, entry.ContentHash}, size))
	if size == 0 {
		e.pools.sources.drop(tag)
	}
	return e.savePools()
}

// Pools returns the pools by tag.
func (e *Engine) Pools() []PoolStatus { return e.pools.status() }

func (e *Engine) poolsFile() string { return filepath.Join(e.cfg.StoreDir, "pools.json") }

func (e *Engine) savePools() error { return writeJSON(e.poolsFile(), e.pools.sizes()) }

// loadPools brings back the sizes that were set before.
func (e *Engine) loadPools() {
	var sizes map[string]int
	if err := readJSON(e.poolsFile(), &sizes); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			e.cfg.Logger.Warn("pool sizes are lost", "err", err)
		}
		return
	}
	for tag, size := range sizes {
		if entry, err := e.store.Get(tag); err == nil && size >= 0 && size <= MaxPool {
			e.pools.set(poolKey{entry.Manifest.Shape, tag, entry.ContentHash}, size)
		}
	}
}

// refill keeps the pools full until ctx ends, standing back while forks run.
func (e *Engine) refill(ctx context.Context) {
	const least, most = 100 * time.Millisecond, 30 * time.Second
	wait := least
	for e.traffic.wait(ctx) == nil {
		switch ok, err := e.refillOne(ctx); {
		case err != nil && ctx.Err() == nil:
			e.cfg.Logger.Warn("pool: no shell", "err", err, "retry_in", wait)
			sleep(ctx, wait)
			wait = min(2*wait, most)
		case !ok:
			select {
			case <-e.pools.kick:
			case <-ctx.Done():
			}
		default:
			wait = least
		}
	}
}

func (e *Engine) refillOne(ctx context.Context) (ok bool, err error) {
	key, lacking := e.pools.lack()
	if !lacking {
		return false, nil
	}
	m, src, err := e.makeShell(ctx, key)
	if err != nil {
		e.pools.miss(key)
		return false, err
	}
	// Before put: from then on somebody else may own it.
	e.own(m, func() { e.shellEnded(m) })
	taken, kept := e.pools.put(m, src)
	if !taken {
		e.discard(m)
	}
	if src != nil && !kept {
		src.close()
	}
	return true, nil
}

// makeShell makes a shell that has time to get ready: one with a tag is restored
// from the tag's snapshot as far as can be done before it is known which child it
// will be, and a plain one rehearses that.
func (e *Engine) makeShell(ctx context.Context, key poolKey) (*machine, *forkSource, error) {
	release, err := e.memory.admit(e.cfg.ChildMemory)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	m, err := e.spawnVMM(ctx, vmmctl.SpawnConfig{Shape: key.shape, Rehearse: key.tag == ""})
	if err != nil {
		return nil, nil, err
	}
	m.shelf = key
	if key.tag == "" {
		return m, nil, nil
	}
	src, err := e.prepare(ctx, m)
	if err != nil {
		e.discard(m)
		if errors.Is(err, ErrNotRestorable) {
			e.pools.spoil(key) // a fork will say so as well
		}
		return nil, nil, fmt.Errorf("prepare a shell for %s: %w", key.tag, err)
	}
	return m, src, nil
}

// prepare does not count as a use of the snapshot: it may be deleted meanwhile,
// and then nobody wants the shell.
func (e *Engine) prepare(ctx context.Context, m *machine) (_ *forkSource, err error) {
	src, err := e.openSource(m.shelf.tag)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			src.close()
		}
	}()
	if src.key() != m.shelf {
		return nil, problem(ErrConflict, "", "snapshot %s is another one by now", m.shelf.tag)
	}
	if m.gate, err = startgate.New(); err != nil {
		return nil, err
	}
	f := &forking{e: e, req: ForkRequest{Tag: m.shelf.tag, N: 1}, start: e.cfg.Now(), src: src, gate: m.gate, ahead: true}
	if err := f.load(ctx, m); err != nil {
		return nil, err
	}
	m.prepared = true
	return src, nil
}

// shellEnded clears away a shell that died in the pool. One that was taken is
// the taker's, who notices by itself.
func (e *Engine) shellEnded(m *machine) {
	if e.pools.remove(m) {
		e.cfg.Logger.Warn("pool: a shell died", "reason", m.proc.Exit().Reason)
		e.discard(m)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
