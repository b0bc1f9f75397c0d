package arrivals

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/images/fetcher"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/partial"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Config configures Arrivals. All fields except the first two are required.
type Config struct {
	Client    *fetcher.Client // of the process that fetches; nil: snapshots arrive whole only
	Hosts     []string        // registries from which tenants may fetch
	Store     *snapshot.Store
	Catalog   *catalog.Catalog
	Sandboxes *sandboxes.Table
	Tell      sandbox.Events
	Log       *slog.Logger
}

// Arrivals watches the snapshots that have not arrived whole. Run does the work.
type Arrivals struct {
	cfg     Config
	stalled map[string]string // reasons by tag; used by Run only
}

// New returns Arrivals.
func New(c Config) *Arrivals { return &Arrivals{cfg: c, stalled: map[string]string{}} }

const (
	every = time.Second
	// patience is how long a failure may last before it is an outage.
	patience = 2 * time.Second
	// dying is the time after a failed read in which the end of a VM is its consequence.
	dying = 10 * time.Second
)

// Run settles complete files and reports outages until ctx ends.
func (a *Arrivals) Run(ctx context.Context) {
	if a.cfg.Client == nil {
		return
	}
	for {
		if err := a.pass(ctx); err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("arrivals of snapshots", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

func (a *Arrivals) pass(ctx context.Context) error {
	root := a.cfg.Store.Layers().Arriving().Dir()
	ids, err := partial.IDs(root)
	if err != nil || len(ids) == 0 && len(a.stalled) == 0 {
		return err
	}
	if err := a.settle(ids); err != nil {
		return err
	}
	if len(ids) > 0 {
		if err := a.cfg.Client.Ensure(ctx); err != nil {
			return err
		}
	}
	states, err := a.cfg.Client.Files(ctx)
	if err != nil {
		return err
	}
	return a.judge(states)
}

// settle makes layers and files of those that are complete.
func (a *Arrivals) settle(ids []layer.ID) error {
	entries, err := a.cfg.Store.List()
	if err != nil {
		return err
	}
	before := map[string]bool{}
	for _, en := range entries {
		before[en.Tag] = len(a.cfg.Store.Absent(en)) > 0
	}
	root := a.cfg.Store.Layers().Arriving().Dir()
	var errs []error
	for _, id := range ids {
		spec, err := partial.Describe(root, id)
		switch p, bad := partial.Read(root, id); {
		case errors.Is(errors.Join(err, bad), fs.ErrNotExist): // it was dropped meanwhile
		case err != nil || bad != nil:
			errs = append(errs, err, bad)
		case !strings.HasPrefix(spec.Name, "layer/"):
			errs = append(errs, a.cfg.Store.SettleFile(id, spec.Name))
		case p.Complete:
			errs = append(errs, a.cfg.Store.Layers().Arriving().Settle(id))
		}
	}
	for _, en := range entries {
		if before[en.Tag] && len(a.cfg.Store.Absent(en)) == 0 {
			a.cfg.Log.Info("snapshot has arrived", "tag", en.Tag)
			a.cfg.Tell(sandbox.EventSnapshotArrived, en.Tag, map[string]string{})
			a.cfg.Catalog.HashLater(en.Tag)
		}
	}
	return errors.Join(errs...)
}

// judge finds the snapshots whose rest does not arrive, and tells their sandboxes.
func (a *Arrivals) judge(states []fetcher.State) error {
	bad := map[layer.ID]string{}
	for _, s := range states {
		if s.Complete || s.Since.IsZero() || time.Since(s.Since) < patience {
			continue
		}
		bad[s.ID] = reason(s)
	}
	entries, err := a.cfg.Store.List()
	if err != nil {
		return err
	}
	stalled, waiting := map[string]string{}, map[string]string{}
	for _, en := range entries {
		absent := a.cfg.Store.Absent(en)
		i := slices.IndexFunc(absent, func(id layer.ID) bool { return bad[id] != "" })
		if i < 0 {
			continue
		}
		stalled[en.Tag] = bad[absent[i]]
		needed := func(s fetcher.State) bool {
			return (s.Waiting > 0 || s.Lost && time.Since(s.Failed) < dying) && slices.Contains(absent, s.ID)
		}
		if !slices.ContainsFunc(states, needed) {
			continue // the guests have what they use
		}
		for _, id := range a.cfg.Sandboxes.Using(en.Tag, en.ContentHash) {
			waiting[id] = stalled[en.Tag]
		}
	}
	a.tell(stalled)
	sandboxes.NoteOutages(a.cfg.Sandboxes, waiting)
	return nil
}

// reason describes an outage to the user of a sandbox.
func reason(s fetcher.State) string {
	if s.Lost {
		return "the rest of its snapshot did not arrive in time (" + s.Reason + ")"
	}
	return "the rest of its snapshot does not arrive (" + s.Reason + ")"
}

// tell reports the changes.
func (a *Arrivals) tell(stalled map[string]string) {
	for tag, why := range stalled {
		if a.stalled[tag] == "" {
			a.cfg.Log.Warn("the rest of a snapshot does not arrive", "tag", tag, "reason", why)
			a.cfg.Tell(sandbox.EventFetchStalled, tag, map[string]string{sandbox.EventKeyReason: why})
		}
	}
	for tag := range a.stalled {
		if stalled[tag] == "" {
			a.cfg.Log.Info("the rest of a snapshot arrives again", "tag", tag)
			a.cfg.Tell(sandbox.EventFetchResumed, tag, map[string]string{})
		}
	}
	a.stalled = stalled
}
