package pool

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strconv"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Config is what Pools are made of.
type Config struct {
	Launcher  *launch.Launcher
	Admission *admission.Control
	// ShellMemory is what one shell is reckoned to need, in bytes.
	ShellMemory int64
	// Fallback is the number of plain shells for each shape that a tag without a size of its own has.
	Fallback int
	// Find finds a tag's snapshot.
	Find func(tag string) (snapshot.Entry, error)
	// Open opens a tag's snapshot for somebody whom a deletion need not mind.
	Open func(tag string) (*launch.Source, error)
	// AwaitForks returns when no fork is under way.
	AwaitForks func(context.Context) error
	File       string         // that remembers the sizes
	AtOnce     int            // how many shells are ended at once
	Tell       sandbox.Events // is told of sizes that were set
	Log        *slog.Logger
}

// Pools are the pools of all tags. Their methods are safe for concurrent use.
type Pools struct {
	cfg     Config
	buckets *buckets
}

// New makes pools that are empty and stay so until Run.
func New(c Config) *Pools { return &Pools{c, newBuckets(c.Fallback)} }

// Run keeps the pools full until ctx ends.
func (p *Pools) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range Refillers {
		all.Go(func() { p.refill(ctx) })
	}
	all.Wait()
}

// Close ends all shells; none is made or taken from then on.
func (p *Pools) Close() {
	p.discard(p.buckets.drain())
	p.buckets.sources.dropAll()
}

// Set sets how many shells are kept ready for a tag's snapshot. Run fills the pool. The size is
// remembered with the store.
func (p *Pools) Set(tag string, size int) error {
	if size < 0 || size > sandbox.MaxPool {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "pool size is %d, want 0 to %d", size, sandbox.MaxPool)
	}
	key, err := p.keyOf(tag)
	if err != nil {
		return err
	}
	p.discard(p.buckets.set(key, size))
	if size == 0 {
		p.buckets.sources.drop(key.Tag)
	}
	if err := p.save(); err != nil {
		return err
	}
	p.cfg.Tell(sandbox.EventPool, tag, map[string]string{"size": strconv.Itoa(size)})
	return nil
}

// keyOf names the pool of a tag's snapshot, if that is there.
func (p *Pools) keyOf(tag string) (Key, error) {
	entry, err := p.cfg.Find(tag)
	if err != nil {
		return Key{}, sandbox.StoreError(err)
	}
	return Key{Shape: entry.Manifest.Shape, Tag: tag, Hash: entry.ContentHash, Owner: entry.Manifest.Owner}, nil
}

// Forget drops the pool of a snapshot that was deleted.
func (p *Pools) Forget(tag string) {
	p.discard(p.buckets.forget(tag))
	p.buckets.sources.drop(tag)
	if err := p.save(); err != nil {
		p.cfg.Log.Warn("save pool sizes", "err", err)
	}
}

// Touch makes the pool of a tag exist with the default size, of plain shells.
func (p *Pools) Touch(tag string, shape vmspec.Shape) { p.buckets.touch(tag, shape) }

// Take hands out a shell, a prepared one before a plain one, or nil. It is the
// caller's then, dead or alive.
func (p *Pools) Take(src *launch.Source) *launch.VM {
	s := p.buckets.take(KeyOf(src))
	if s == nil {
		return nil
	}
	s.Own(nil)
	return s.VM
}

// Source hands out the open snapshot that a tag's shells are prepared with, to be closed
// like any other; nil: there is none.
func (p *Pools) Source(tag string) *launch.Source { return p.buckets.sources.take(tag) }

// Count is the number of shells that stand ready for a snapshot.
func (p *Pools) Count(src *launch.Source) int { return p.buckets.count(KeyOf(src)) }

// Status lists the pools by tag.
func (p *Pools) Status() []sandbox.PoolStatus { return p.buckets.status() }

// Wake has the pools filled up.
func (p *Pools) Wake() { p.buckets.wake() }

func (p *Pools) discard(shells []*shell) {
	sched.Each(len(shells), p.cfg.AtOnce, func(i int) { shells[i].Discard() })
}

func (p *Pools) save() error { return vmproc.WriteJSON(p.cfg.File, p.buckets.sizes()) }

// Load brings back the sizes that were set before, of the snapshots that still are there.
func (p *Pools) Load() {
	var sizes map[string]int
	if err := vmproc.ReadJSON(p.cfg.File, &sizes); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.cfg.Log.Warn("pool sizes are lost", "err", err)
		}
		return
	}
	for tag, size := range sizes {
		if key, err := p.keyOf(tag); err == nil && size >= 0 && size <= sandbox.MaxPool {
			p.buckets.set(key, size)
		}
	}
}

// Shells are those that stand ready, of all tags.
func (p *Pools) Shells() []*launch.VM { return p.buckets.all() }
