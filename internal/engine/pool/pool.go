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

// Config configures Pools.
type Config struct {
	Launcher  *launch.Launcher   // spawns and prepares shells
	Admission *admission.Control // admits each shell
	// ShellMemory is the assumed memory of one shell, in bytes.
	ShellMemory int64
	// Fallback is the number of plain shells for each shape of tags without a configured size.
	Fallback int
	// Find finds a tag's snapshot.
	Find func(tag string) (snapshot.Entry, error)
	// Open opens a tag's snapshot for a user that does not block its deletion.
	Open func(tag string) (*launch.Source, error)
	// AwaitForks waits until no fork is running.
	AwaitForks func(context.Context) error
	// Stopped reports whether to make no shells for now. The caller calls Wake when that changes.
	Stopped func() bool
	File    string         // stores the sizes
	AtOnce  int            // number of shells ended concurrently
	Tell    sandbox.Events // receives changes of sizes
	Log     *slog.Logger   // receives failures to make shells or to save sizes
}

// Pools holds the pools of all tags. Its methods are safe for concurrent use.
type Pools struct {
	cfg     Config
	buckets *buckets
}

// New returns pools that stay empty until Run.
func New(c Config) *Pools { return &Pools{c, newBuckets(c.Fallback)} }

// Run keeps the pools full until ctx ends.
func (p *Pools) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range Refillers {
		all.Go(func() { p.refill(ctx) })
	}
	all.Wait()
}

// Close ends all shells. No shells are made or taken after it.
func (p *Pools) Close() {
	p.discard(p.buckets.drain())
	p.buckets.sources.dropAll()
}

// Set sets the number of ready shells for a tag's snapshot. Run fills the pool. The size is stored.
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

// keyOf returns the key for a tag's snapshot, if it exists.
func (p *Pools) keyOf(tag string) (Key, error) {
	entry, err := p.cfg.Find(tag)
	if err != nil {
		return Key{}, sandbox.StoreError(err)
	}
	return Key{Shape: entry.Manifest.Shape, Tag: tag, Hash: entry.ContentHash, Owner: entry.Manifest.Owner}, nil
}

// Forget drops the pool of a deleted snapshot.
func (p *Pools) Forget(tag string) {
	p.discard(p.buckets.forget(tag))
	p.buckets.sources.drop(tag)
	if err := p.save(); err != nil {
		p.cfg.Log.Warn("save pool sizes", "err", err)
	}
}

// Touch creates the pool of a tag with the default size, of plain shells, if it does not exist.
func (p *Pools) Touch(tag string, shape vmspec.Shape) { p.buckets.touch(tag, shape) }

// Take returns a shell, a prepared one before a plain one, or nil. The caller then owns it, dead or
// alive.
func (p *Pools) Take(src *launch.Source) *launch.VM {
	s := p.buckets.take(KeyOf(src))
	if s == nil {
		return nil
	}
	s.Own(nil)
	return s.VM
}

// Source returns the open snapshot for preparing a tag's shells, or nil. The caller closes it.
func (p *Pools) Source(tag string) *launch.Source { return p.buckets.sources.take(tag) }

// Count returns the number of ready shells for a snapshot.
func (p *Pools) Count(src *launch.Source) int { return p.buckets.count(KeyOf(src)) }

// Status lists the pools by tag.
func (p *Pools) Status() []sandbox.PoolStatus { return p.buckets.status() }

// Wake starts filling the pools.
func (p *Pools) Wake() { p.buckets.wake() }

func (p *Pools) discard(shells []*shell) {
	sched.Each(len(shells), p.cfg.AtOnce, func(i int) { shells[i].Discard() })
}

func (p *Pools) save() error { return vmproc.WriteJSON(p.cfg.File, p.buckets.sizes()) }

// Load restores the stored sizes of snapshots that still exist.
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

// Shells returns the ready shells of all tags.
func (p *Pools) Shells() []*launch.VM { return p.buckets.all() }
