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

// Sandboxes reports which sandboxes use snapshots. It is called without the catalog's mutex.
type Sandboxes interface {
	// Using returns the ids of the sandboxes running from a snapshot, sorted. The tag may have been
	// reused for another snapshot. If hash is empty, any snapshot of the tag matches.
	Using(tag, hash string) []string
	// Bases returns the content hashes of the base snapshots of running sandboxes.
	Bases() map[string]bool
	// PinLayers pins a snapshot's layers for each sandbox based on it, since the snapshot's pin is
	// about to be removed.
	PinLayers(of snapshot.Entry) error
}

// Config configures a Catalog. All fields except the last two are required.
type Config struct {
	Snapshots *snapshot.Store // manifests and states
	Layers    *store.Store    // of the snapshots' memory and disks
	Sandboxes Sandboxes       // users of snapshots
	// Deleted is called for each deleted snapshot, before its tag is free again.
	Deleted func(tag string)
	// Renamed is called for each renamed snapshot, before its old tag is free again.
	Renamed func(hash, tag, to string)
	// Tell receives events about snapshots, for outside observers.
	Tell sandbox.Events
	// Acts receives the removals by retention.
	Acts sandbox.Acts
	// AwaitForks waits until no fork is running, AwaitBranches until no branch is running.
	// Background work calls them repeatedly, to leave the CPUs to forks and branches.
	AwaitForks, AwaitBranches func(context.Context) error
	Now                       func() time.Time // wall clock
	Logger                    *slog.Logger     // receives failures of background work
	// Published reports whether all tenants may fork a snapshot. Such a snapshot stays. If nil, no snapshot is public.
	Published func(tag, contentHash string) bool
	// ScrubInterval is how often each layer is read whole in the background. If 0, layers are never
	// scrubbed.
	ScrubInterval time.Duration
	// Agent describes the agent in a snapshot's guests. If nil, snapshots have no such description.
	Agent func(snapshot.Agent) *sandbox.Agent
}

// Catalog manages the engine's snapshots. Its methods are safe for concurrent use.
type Catalog struct {
	cfg       Config
	snapshots *snapshot.Store
	layers    *store.Store

	tags      *tagTable // the in-memory state
	hasher    *hasher
	scrubber  *scrubber
	collector *collector

	// ruling is held while labels change, and from a look at a snapshot's labels until its deletion has begun. So no
	// snapshot is deleted that was pinned in between. It is taken before the locks of tags and stores.
	ruling sync.Mutex
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

// Run hashes, scrubs, collects and removes due snapshots in the background until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	var workers sync.WaitGroup
	workers.Go(func() { c.hasher.run(ctx) })
	workers.Go(func() { c.scrubber.run(ctx) })
	workers.Go(func() { c.collector.run(ctx) })
	workers.Go(func() { Retention{c}.run(ctx) })
	workers.Wait()
}
