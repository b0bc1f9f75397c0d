package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"
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
	e.discardAll(e.pools.set(tag, entry.Manifest.Shape, size))
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
			e.pools.set(tag, entry.Manifest.Shape, size)
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
	shape, lacking := e.pools.lack()
	if !lacking {
		return false, nil
	}
	release, err := e.memory.admit(e.cfg.ChildMemory)
	if err != nil {
		e.pools.miss(shape)
		return false, err
	}
	defer release()
	m, err := e.spawnForPool(ctx, shape)
	if err != nil {
		e.pools.miss(shape)
		return false, err
	}
	// Before put: from then on somebody else may own it.
	e.own(m, func() { e.shellEnded(m) })
	if !e.pools.put(m) {
		e.discard(m)
	}
	return true, nil
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
