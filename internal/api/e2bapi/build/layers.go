package build

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// keepUnused is the time for which a layer without a template is kept.
const keepUnused = 7 * 24 * time.Hour

// layer returns the layer stored under a key.
func (s *Store) layer(key string) (layer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.layers.all[key]
	return l, ok && !l.Pending
}

// use records a new use of a layer.
func (s *Store) use(key string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.layers.all[key]; ok {
		l.Used = now
		_ = s.layers.put(key, l) // an error only makes it collected sooner
	}
}

// intend records that a layer's snapshot is about to be made, so that an unrecorded snapshot can be
// found. It does not change the layer the key has meanwhile.
func (s *Store) intend(l layer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.Pending = true
	return s.outdated.put(l.Tag, l)
}

// keep stores a layer with a finished snapshot under its key. A previous layer of the key becomes
// outdated.
func (s *Store) keep(key, intended string, l layer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.layers.all[key]; ok && old.Tag != l.Tag {
		if err := s.outdated.put(old.Tag, old); err != nil {
			return err
		}
	}
	if err := s.layers.put(key, l); err != nil {
		return err
	}
	return s.outdated.remove(intended)
}

// drop removes an intended layer if its snapshot was not made or is deleted.
func (s *Store) drop(tag string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outdated.remove(tag)
}

// candidate is a layer that may be collected.
type candidate struct {
	key string // if empty, it is outdated
	layer
}

// unneeded returns layers that no template's build uses, youngest first, because younger layers are
// built on older ones. The builds of one template may be excluded.
func (s *Store) unneeded(before time.Time, without string) []candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	needed, tags := map[string]bool{}, map[string]bool{}
	for _, t := range s.templates.all {
		for _, b := range t.Builds {
			over := b.Status == Failed || b.Status == Ready && !t.hasTag(b.ID)
			if over || t.ID == without {
				continue
			}
			tags[b.Snapshot] = true
			for _, key := range b.Layers {
				needed[key] = true
			}
		}
	}
	var out []candidate
	for key, l := range s.layers.all {
		if !needed[key] && !tags[l.Tag] && l.Used.Before(before) {
			out = append(out, candidate{key, l})
		}
	}
	for _, l := range s.outdated.all {
		if !l.Pending && !tags[l.Tag] && l.Used.Before(before) {
			out = append(out, candidate{"", l})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return -a.Made.Compare(b.Made) })
	return out
}

// unneededOver returns the unneeded layers that are built on a snapshot, youngest first.
func (s *Store) unneededOver(tag, without string, now time.Time) []candidate {
	all := s.unneeded(now.Add(time.Hour), without)
	over := map[string]bool{tag: true}
	var out []candidate
	for _, c := range slices.Backward(all) { // the oldest first, so that a layer comes after the layers below it
		if over[c.Below] {
			over[c.Tag] = true
			out = append(out, c)
		}
	}
	slices.Reverse(out)
	return out
}

// onlyOf returns the last layers of a template's builds, if no other template's build uses them.
// Intermediate layers stay for the next build until they are collected.
func (s *Store) onlyOf(t Template) []candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := map[string]bool{}
	for _, other := range s.templates.all {
		for _, b := range other.Builds {
			if other.ID == t.ID {
				continue
			}
			for _, key := range b.Layers {
				others[s.layers.all[key].Tag] = true
			}
			others[b.Snapshot] = true
		}
	}
	var out []candidate
	for _, b := range t.Builds {
		if b.Snapshot == "" || others[b.Snapshot] {
			continue
		}
		for key, l := range s.layers.all {
			if l.Tag == b.Snapshot {
				out = append(out, candidate{key, l})
			}
		}
		if l, ok := s.outdated.all[b.Snapshot]; ok {
			out = append(out, candidate{"", l})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return -a.Made.Compare(b.Made) })
	return slices.CompactFunc(out, func(a, b candidate) bool { return a.Tag == b.Tag })
}

// collect deletes unneeded layers that were not used for a while. It keeps layers with running
// sandboxes or with other snapshots on top.
func (b *Builder) collect(ctx context.Context) {
	for _, c := range b.cfg.Store.unneeded(b.cfg.Now().Add(-keepUnused), "") {
		if err := b.removeLayer(ctx, c); err != nil && !errors.Is(err, sandbox.ErrConflict) {
			b.cfg.Log.Warn("delete a layer that nothing needs", "snapshot", c.Tag, "error", err)
		}
	}
	b.cfg.Store.collectFiles(b.cfg.Now())
}

// removeLayer deletes a layer's snapshot and its record.
func (b *Builder) removeLayer(ctx context.Context, c candidate) error {
	err := b.cfg.Engine.DeleteSnapshot(b.as(ctx, c.Owner), c.Tag, sandbox.DeleteOptions{})
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	s := b.cfg.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.key == "" {
		return s.outdated.remove(c.Tag)
	}
	if s.layers.all[c.key].Tag != c.Tag {
		return nil // it was made again meanwhile
	}
	return s.layers.remove(c.key)
}
