package catalog

import (
	"context"
	"errors"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Verify reads a whole snapshot and compares it with its digests. The report lists damage; damage
// is not an error. The context may have a function for its progress (sandbox.WithProgress).
func (c *Catalog) Verify(ctx context.Context, tag string) (sandbox.VerifyReport, error) {
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.VerifyReport{}, sandbox.StoreError(err)
	}
	if err := c.tags.get(tag).refusal(tag); err != nil {
		return sandbox.VerifyReport{}, err
	}
	start := c.cfg.Now()
	r, err := c.snapshots.VerifyTelling(ctx, tag, sandbox.Progress(ctx))
	if errors.Is(err, storeerr.ErrNoDigests) {
		c.HashLater(tag)
	}
	if err != nil {
		return sandbox.VerifyReport{}, sandbox.StoreError(err)
	}
	c.noteVerified(tag, r)
	out := sandbox.VerifyReport{Tag: tag, Files: r.Files, Bytes: r.Bytes, Took: c.cfg.Now().Sub(start)}
	for _, d := range r.Damaged {
		out.Damaged = append(out.Damaged, sandbox.Damage(d))
	}
	return out, nil
}

// noteVerified records a verification as a check of each layer, good or bad.
func (c *Catalog) noteVerified(tag string, r snapshot.Report) {
	entry, err := c.snapshots.Get(tag)
	if entry.Manifest == nil || err != nil && !errors.Is(err, storeerr.ErrNotRestorable) {
		return
	}
	for _, id := range entry.Manifest.LayerIDs() {
		found := store.Checked{At: c.cfg.Now()}
		of := func(d snapshot.Damage) bool { return d.File == snapshot.LayerFile(id) }
		if i := slices.IndexFunc(r.Damaged, of); i >= 0 {
			d := r.Damaged[i]
			found.Damage = store.DamageText(layer.Damage{Offset: d.Offset, Length: d.Length, Detail: d.Detail})
		}
		if err := c.layers.SetChecked(id, found); err != nil {
			c.cfg.Logger.Warn("note a verification", "tag", tag, "err", err)
		}
	}
}
