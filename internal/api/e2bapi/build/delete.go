package build

import (
	"context"
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Delete cancels a template's builds, and deletes the template and its snapshots. If a snapshot is
// in use, Delete returns a conflict and keeps it.
func (b *Builder) Delete(ctx context.Context, owner, name string) error {
	t, err := b.cfg.Store.Template(owner, name)
	if err != nil {
		return err
	}
	if err := b.deleteSnapshots(ctx, t); err != nil {
		return err
	}
	b.mu.Lock()
	for _, j := range b.jobs {
		if j.template == t.ID {
			j.cancel(errDeleted)
		}
	}
	b.mu.Unlock()
	s := b.cfg.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.templates.remove(t.ID)
}

// deleteSnapshots deletes the snapshots of a template's builds that no other template needs, and
// the layers kept for later builds on top of them.
func (b *Builder) deleteSnapshots(ctx context.Context, t Template) error {
	for _, c := range b.cfg.Store.onlyOf(t) {
		err := b.removeLayer(ctx, c)
		if errors.Is(err, sandbox.ErrConflict) {
			for _, on := range b.cfg.Store.unneededOver(c.Tag, t.ID, b.cfg.Now()) {
				_ = b.removeLayer(ctx, on) // if it cannot be deleted, neither can the layer below
			}
			err = b.removeLayer(ctx, c)
		}
		if errors.Is(err, sandbox.ErrConflict) {
			return sandbox.Errorf(sandbox.ErrConflict, "", "cannot delete template '%s': %w", t.Name, err)
		}
		if err != nil {
			return fmt.Errorf("delete template %s: %w", t.Name, err)
		}
	}
	return nil
}
