package catalog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Sandboxes is what the catalog asks of those that run from snapshots. It is called
// without the catalog's mutex.
type Sandboxes interface {
	// Using returns the ids of the sandboxes that run from a snapshot, sorted. The tag
	// may be another snapshot's by now; with an empty hash any of that tag will do.
	Using(tag, hash string) []string
	// Bases are the content hashes of the snapshots that running sandboxes lie over.
	Bases() map[string]bool
	// PinLayers gives each sandbox that lies over a snapshot a pin of its own: the
	// snapshot's pin is about to go.
	PinLayers(of snapshot.Entry) error
}

// Config is what a Catalog is made of. All fields are needed but the last.
type Config struct {
	Snapshots *snapshot.Store
	Layers    *store.Store // of the snapshots' memory and disks
	Sandboxes Sandboxes
	// Deleted is called for each snapshot that was deleted, before its tag is free again.
	Deleted func(tag string)
	// Tell is told what happens to snapshots, for those who follow it from outside.
	Tell sandbox.Events
	// AwaitForks returns when no fork is under way; AwaitBranches when no branch is. Background
	// work calls them again and again, so that it does not take the CPUs that those need.
	AwaitForks, AwaitBranches func(context.Context) error
	Now                       func() time.Time
	Logger                    *slog.Logger
	// ScrubInterval is how often each layer is read whole in the background; 0: never.
	ScrubInterval time.Duration
}

// Catalog is the engine's snapshots. Its methods are safe for concurrent use.
type Catalog struct {
	cfg       Config
	snapshots *snapshot.Store
	layers    *store.Store

	tags      *tagTable // what of it all is in memory
	hasher    *hasher
	scrubber  *scrubber
	collector *collector
}

// Open returns the catalog of two stores. Run does its background work.
func Open(c Config) (*Catalog, error) {
	retired, err := loadRetired(c.Snapshots)
	if err != nil {
		return nil, err
	}
	k := &Catalog{cfg: c, snapshots: c.Snapshots, layers: c.Layers, tags: newTagTable(retired)}
	k.collector = &collector{
		snapshots: c.Snapshots, layers: c.Layers, tags: k.tags, sandboxes: c.Sandboxes, log: c.Logger,
		wake: make(chan struct{}, 1),
	}
	k.hasher = &hasher{
		snapshots: c.Snapshots, awaitForks: c.AwaitForks, collectLater: k.collector.later, log: c.Logger,
		tags: make(chan string, maxHashing),
	}
	k.scrubber = &scrubber{
		layers: c.Layers, every: c.ScrubInterval, awaitForks: c.AwaitForks, awaitBranches: c.AwaitBranches,
		now: c.Now, log: c.Logger,
	}
	return k, nil
}

// Run hashes, scrubs and collects in the background until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	var workers sync.WaitGroup
	workers.Go(func() { c.hasher.run(ctx) })
	workers.Go(func() { c.scrubber.run(ctx) })
	workers.Go(func() { c.collector.run(ctx) })
	workers.Wait()
}
