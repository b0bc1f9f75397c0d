package catalog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/layer/store"
	"github.com/forkd/forkd/internal/snapshot"
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
	cfg        Config
	snapshots  *snapshot.Store
	layers     *store.Store
	hashing    chan string   // tags of snapshots without digests
	collecting chan struct{} // has a value when there may be something to collect

	// mu guards what follows. No other lock is taken under it, and the disk is not read.
	mu sync.Mutex
	// tags has the tags for which something is under way.
	tags map[string]*entry
	// uses counts the calls of Use that succeeded, see claim.
	uses uint64
	// retired are the snapshots that were deleted while in use: their former tags, by content hash.
	retired map[string]string
}

// Open returns the catalog of two stores. Run does its background work.
func Open(c Config) (*Catalog, error) {
	k := &Catalog{
		cfg: c, snapshots: c.Snapshots, layers: c.Layers,
		hashing: make(chan string, maxHashing), collecting: make(chan struct{}, 1),
		tags: map[string]*entry{},
	}
	var err error
	k.retired, err = k.loadRetired()
	return k, err
}

// Run hashes, scrubs and collects in the background until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	var workers sync.WaitGroup
	workers.Go(func() { c.hashAll(ctx) })
	workers.Go(func() { c.scrubAll(ctx) })
	workers.Go(func() { c.collectAll(ctx) })
	workers.Wait()
}
