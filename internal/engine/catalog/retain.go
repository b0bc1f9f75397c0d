package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/retention"
	"github.com/forkd/forkd/internal/store/snapshot"
)

const (
	// retainEvery is the interval of looks for due snapshots.
	retainEvery = 30 * time.Second
	// retainAfter is how long a snapshot must be due at each look before it goes. A wall clock that was ahead for
	// less removes no snapshot.
	retainAfter = time.Minute
)

// waiting holds the snapshots that are due, by content hash, and the time of the look that found each first, by a
// monotonic clock.
type waiting map[string]time.Duration

// Retention removes due snapshots of a catalog.
type Retention struct{ catalog *Catalog }

// NewRetention returns the Retention of a catalog.
func NewRetention(c *Catalog) Retention { return Retention{c} }

// run removes due snapshots until ctx ends.
func (r Retention) run(ctx context.Context) {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	began, due := time.Now(), waiting{}
	for {
		select {
		case <-tick.C:
			if r.catalog.cfg.AwaitForks(ctx) == nil {
				due = r.look(ctx, due, time.Since(began))
			}
		case <-ctx.Done():
			return
		}
	}
}

// look removes the snapshots that have been due for retainAfter, and returns the ones that are due now.
func (r Retention) look(ctx context.Context, before waiting, elapsed time.Duration) waiting {
	all, found, err := r.due(ctx)
	if err != nil {
		r.catalog.cfg.Logger.Warn("look for due snapshots", "err", err)
		return before
	}
	now := waiting{}
	for _, d := range found {
		hash := all[d.Tag].ContentHash
		if d.Held != "" || hash == "" {
			continue
		}
		first, waits := before[hash]
		if !waits {
			first = elapsed
		}
		if now[hash] = first; elapsed-first >= retainAfter {
			r.act(all[d.Tag], d.Why, func() string { return r.removeDue(ctx, d.Tag, hash, sandbox.ByRetention) })
		}
	}
	return now
}

// act removes a snapshot and reports it as an act of the daemon.
func (r Retention) act(s sandbox.SnapshotInfo, why string, remove func() (held string)) {
	began := time.Now()
	a := sandbox.Act{Action: sandbox.ActDelete, By: sandbox.ByRetention, Why: why,
		Of: sandbox.Info{Owner: s.Owner, SnapshotTag: s.Tag}}
	if held := remove(); held != "" {
		a.Err = errors.New(held)
	}
	a.Took = time.Since(began)
	r.catalog.cfg.Acts(a)
}

// due returns all snapshots by tag, and the due ones.
func (r Retention) due(ctx context.Context) (map[string]sandbox.SnapshotInfo, []retention.Due, error) {
	list, err := r.catalog.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	byTag := make(map[string]sandbox.SnapshotInfo, len(list))
	facts := make([]retention.Snapshot, 0, len(list))
	for _, s := range list {
		s.Public = r.catalog.cfg.Published != nil && r.catalog.cfg.Published(s.Tag, s.ContentHash)
		byTag[s.Tag] = s
		f := s.Retained()
		if e := r.catalog.tags.get(s.Tag); f.Held == "" && e.users > 0 {
			f.Held = "it is being forked, pushed or exported"
		}
		facts = append(facts, f)
	}
	return byTag, retention.Plan(facts, r.catalog.cfg.Now()), nil
}

// Prune removes due snapshots. With DryRun it only lists them.
func (r Retention) Prune(ctx context.Context, req sandbox.PruneRequest) (sandbox.PruneReport, error) {
	report := sandbox.PruneReport{DryRun: req.DryRun}
	all, found, err := r.due(ctx)
	if err != nil {
		return report, err
	}
	var free []string
	for _, d := range found {
		s := all[d.Tag]
		if req.Sees != nil && !req.Sees(s.Owner) {
			continue
		}
		if d.Held == "" {
			free = append(free, d.Tag)
		}
		report.Snapshots = append(report.Snapshots, sandbox.DueSnapshot{Tag: d.Tag, Owner: s.Owner, Why: d.Why, Held: d.Held})
	}
	bytes, err := snapshot.Freed(r.catalog.snapshots, free)
	if err != nil {
		return report, sandbox.StoreError(err)
	}
	for i := range report.Snapshots {
		d := &report.Snapshots[i]
		if d.Held == "" && !req.DryRun {
			d.Held = r.removeDue(ctx, d.Tag, all[d.Tag].ContentHash, "")
		}
		if d.Held == "" {
			d.Bytes = bytes[d.Tag]
			report.Bytes += d.Bytes
		}
	}
	return report, ctx.Err()
}

// removeDue deletes a snapshot if it is still due. It returns the reason why the snapshot stays, or an empty string.
// Snapshots on top of it keep working: their pins hold the layers. by is the principal of the event; empty for a
// request.
func (r Retention) removeDue(ctx context.Context, tag, hash, by string) (held string) {
	why, err := r.claimDue(ctx, tag, hash)
	if err == nil {
		info, _ := r.catalog.Get(tag)
		about := info.About()
		about[sandbox.EventKeyReason] = why
		if by != "" {
			about[sandbox.EventKeyPrincipal] = by
		}
		r.catalog.cfg.Tell(sandbox.EventSnapshotExpired, tag, about)
		defer r.catalog.CollectLater() // after the tag has left its state
		if err = r.catalog.deleteClaimed(tag); err != nil {
			r.catalog.tags.unclaim([]snapshot.Entry{{Tag: tag}})
		}
	}
	switch {
	case errors.Is(err, sandbox.ErrConflict):
		return err.Error()
	case err != nil:
		r.catalog.cfg.Logger.Warn("remove a due snapshot", "tag", tag, "err", err)
		return err.Error()
	}
	r.catalog.cfg.Logger.Info("snapshot removed", "tag", tag, "why", why)
	return ""
}

// claimDue claims a snapshot for its deletion, and returns the rule. It fails if the snapshot is not due any more.
func (r Retention) claimDue(ctx context.Context, tag, hash string) (why string, err error) {
	r.catalog.ruling.Lock()
	defer r.catalog.ruling.Unlock()
	all, found, err := r.due(ctx)
	if err != nil {
		return "", err
	}
	for _, d := range found {
		switch {
		case d.Tag != tag || all[tag].ContentHash != hash:
		case d.Held != "":
			return "", sandbox.Errorf(sandbox.ErrConflict, "", "snapshot %s stays: %s", tag, d.Held)
		default:
			return d.Why, r.catalog.claim([]snapshot.Entry{{Tag: tag, ContentHash: hash}}, false)
		}
	}
	return "", sandbox.Errorf(sandbox.ErrConflict, "", "snapshot %s is not due any more", tag)
}
