package build

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// keepUnused is for how long a layer is kept that no build's template needs.
const keepUnused = 7 * 24 * time.Hour

// layer finds what is kept under a key.
func (s *Store) layer(key string) (layer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.layers.all[key]
	return l, ok && !l.Pending
}

// use notes that a layer is needed again.
func (s *Store) use(key string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.layers.all[key]; ok {
		l.Used = now
		_ = s.layers.put(key, l) // it is only collected sooner
	}
}

// intend notes that a layer's snapshot is about to be made, so that one that nothing else is
// known of can be found. The layer that the key stands for meanwhile is not touched.
func (s *Store) intend(l layer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.Pending = true
	return s.outdated.put(l.Tag, l)
}

// keep puts a layer whose snapshot is made under its key, and what was there among the outdated.
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

// drop forgets an intended layer whose snapshot was not made or is deleted.
func (s *Store) drop(tag string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outdated.remove(tag)
}

// candidate is a layer that may be collected.
type candidate struct {
	key string // empty: it is outdated
	layer
}

// unneeded are layers that no template's build lies over, the youngest first: those are built on
// the others.
// Those of one template may be left out of account.
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

// unneededOver are the unneeded layers that are built on a snapshot, the youngest first.
func (s *Store) unneededOver(tag, without string, now time.Time) []candidate {
	all := s.unneeded(now.Add(time.Hour), without)
	over := map[string]bool{tag: true}
	var out []candidate
	for _, c := range slices.Backward(all) { // the oldest first: what is below another is known
		if over[c.Below] {
			over[c.Tag] = true
			out = append(out, c)
		}
	}
	slices.Reverse(out)
	return out
}

// onlyOf are the layers that a template's builds end with, as far as no other template's build
// lies over them. Those in between stay for the next build, until they are collected.
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

// collect deletes layers that nothing needs and that were not used for a while. Those that
// something runs from, or is built on, stay.
func (b *Builder) collect(ctx context.Context) {
	for _, c := range b.cfg.Store.unneeded(b.cfg.Now().Add(-keepUnused), "") {
		if err := b.removeLayer(ctx, c); err != nil && !errors.Is(err, sandbox.ErrConflict) {
			b.cfg.Log.Warn("delete a layer that nothing needs", "snapshot", c.Tag, "error", err)
		}
	}
	b.cfg.Store.collectFiles(b.cfg.Now())
}

// removeLayer deletes a layer's snapshot and forgets it.
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
