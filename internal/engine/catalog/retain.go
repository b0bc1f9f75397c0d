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
type Retention struct{ *Catalog }

// run removes due snapshots until ctx ends.
func (c Retention) run(ctx context.Context) {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	began, due := time.Now(), waiting{}
	for {
		select {
		case <-tick.C:
			if c.cfg.AwaitForks(ctx) == nil {
				due = c.look(ctx, due, time.Since(began))
			}
		case <-ctx.Done():
			return
		}
	}
}

// look removes the snapshots that have been due for retainAfter, and returns the ones that are due now.
func (c Retention) look(ctx context.Context, before waiting, elapsed time.Duration) waiting {
	all, found, err := c.due(ctx)
	if err != nil {
		c.cfg.Logger.Warn("look for due snapshots", "err", err)
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
			c.act(all[d.Tag], d.Why, func() string { return c.removeDue(ctx, d.Tag, hash, sandbox.ByRetention) })
		}
	}
	return now
}

// act removes a snapshot and reports it as an act of the daemon.
func (c Retention) act(s sandbox.SnapshotInfo, why string, remove func() (held string)) {
	began := time.Now()
	a := sandbox.Act{Action: sandbox.ActDelete, By: sandbox.ByRetention, Why: why,
		Of: sandbox.Info{Owner: s.Owner, SnapshotTag: s.Tag}}
	if held := remove(); held != "" {
		a.Err = errors.New(held)
	}
	a.Took = time.Since(began)
	c.cfg.Acts(a)
}

// due returns all snapshots by tag, and the due ones.
func (c Retention) due(ctx context.Context) (map[string]sandbox.SnapshotInfo, []retention.Due, error) {
	list, err := c.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	byTag := make(map[string]sandbox.SnapshotInfo, len(list))
	facts := make([]retention.Snapshot, 0, len(list))
	for _, s := range list {
		s.Public = c.cfg.Published != nil && c.cfg.Published(s.Tag, s.ContentHash)
		byTag[s.Tag] = s
		f := s.Retained()
		if e := c.tags.get(s.Tag); f.Held == "" && e.users > 0 {
			f.Held = "it is being forked, pushed or exported"
		}
		facts = append(facts, f)
	}
	return byTag, retention.Plan(facts, c.cfg.Now()), nil
}

// Prune removes due snapshots. With DryRun it only lists them.
func (c Retention) Prune(ctx context.Context, req sandbox.PruneRequest) (sandbox.PruneReport, error) {
	report := sandbox.PruneReport{DryRun: req.DryRun}
	all, found, err := c.due(ctx)
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
	bytes, err := snapshot.Freed(c.snapshots, free)
	if err != nil {
		return report, sandbox.StoreError(err)
	}
	for i := range report.Snapshots {
		d := &report.Snapshots[i]
		if d.Held == "" && !req.DryRun {
			d.Held = c.removeDue(ctx, d.Tag, all[d.Tag].ContentHash, "")
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
func (c Retention) removeDue(ctx context.Context, tag, hash, by string) (held string) {
	why, err := c.claimDue(ctx, tag, hash)
	if err == nil {
		info, _ := c.Get(tag)
		about := info.About()
		about[sandbox.EventKeyReason] = why
		if by != "" {
			about[sandbox.EventKeyPrincipal] = by
		}
		c.cfg.Tell(sandbox.EventSnapshotExpired, tag, about)
		defer c.CollectLater() // after the tag has left its state
		if err = c.deleteClaimed(tag); err != nil {
			c.tags.unclaim([]snapshot.Entry{{Tag: tag}})
		}
	}
	switch {
	case errors.Is(err, sandbox.ErrConflict):
		return err.Error()
	case err != nil:
		c.cfg.Logger.Warn("remove a due snapshot", "tag", tag, "err", err)
		return err.Error()
	}
	c.cfg.Logger.Info("snapshot removed", "tag", tag, "why", why)
	return ""
}

// claimDue claims a snapshot for its deletion, and returns the rule. It fails if the snapshot is not due any more.
func (c Retention) claimDue(ctx context.Context, tag, hash string) (why string, err error) {
	c.ruling.Lock()
	defer c.ruling.Unlock()
	all, found, err := c.due(ctx)
	if err != nil {
		return "", err
	}
	for _, d := range found {
		switch {
		case d.Tag != tag || all[tag].ContentHash != hash:
		case d.Held != "":
			return "", sandbox.Errorf(sandbox.ErrConflict, "", "snapshot %s stays: %s", tag, d.Held)
		default:
			return d.Why, c.claim([]snapshot.Entry{{Tag: tag, ContentHash: hash}}, false)
		}
	}
	return "", sandbox.Errorf(sandbox.ErrConflict, "", "snapshot %s is not due any more", tag)
}
