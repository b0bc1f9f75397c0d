package sandboxes

import (
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Pin keeps layers for a sandbox until it ends.
func (t *Table) Pin(s *Sandbox, vm *vmproc.VM, layers []layer.ID) error {
	if err := t.cfg.Pin(s.id, layers); err != nil {
		return err
	}
	vm.Disks.SetPinned()
	if s.isEnding() { // it may not have known of the pin
		t.cfg.Unpin(s.id)
	}
	return nil
}

// PinLayers keeps a snapshot's layers for the sandboxes that lie over it.
func (t *Table) PinLayers(of snapshot.Entry) error {
	for _, id := range t.Using(of.Tag, of.ContentHash) {
		s := t.Lookup(id)
		if s == nil {
			continue // it has ended
		}
		if _, hash := s.Info().Base(); hash != of.ContentHash {
			continue
		}
		if err := t.pinFor(s, of.Manifest.LayerIDs()); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) pinFor(s *Sandbox, ids []layer.ID) error {
	t.mu.Lock()
	vm, is, disks := s.vm, s.state, s.disks
	t.mu.Unlock()
	for _, d := range disks.List() { // also of one that is paused without its memory
		ids = append(ids, d.Backing...)
	}
	switch {
	case vm != nil:
		return t.Pin(s, vm, ids)
	case is != paused:
		return nil // it has ended
	}
	if err := t.cfg.Pin(s.id, ids); err != nil {
		return err
	}
	s.Disks().SetPinned() // after the pin: of one that is resumed meanwhile these are the new VM's
	if s.isEnding() {
		t.cfg.Unpin(s.id)
	}
	return nil
}

// NotePin notes, of an adopted sandbox, that it has a pin; false: there is no such sandbox.
func (t *Table) NotePin(id string) bool {
	if t.isUnread(id) { // it may need them
		return true
	}
	s := t.Lookup(id)
	if s == nil {
		return false
	}
	s.Disks().SetPinned()
	return true
}

// Using are the sandboxes that run from a snapshot or are paused in it, sorted. The tag may be another
// snapshot's by now; without a hash any of that tag will do.
func (t *Table) Using(tag, hash string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for id, s := range t.all {
		if s.info.Needs(tag, hash) && s.state != ending {
			ids = append(ids, id)
		}
	}
	for id := range t.unread {
		if strings.HasPrefix(tag, PauseTag(id)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Bases are the content hashes of the snapshots that sandboxes lie over, running or paused.
func (t *Table) Bases() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	bases := map[string]bool{}
	for _, s := range t.all {
		if s.state == running || s.state == paused {
			_, hash := s.info.Base()
			bases[hash] = true
		}
	}
	return bases
}

// Each calls f for every sandbox that runs. f must be short and take no lock.
func (t *Table) Each(f func(sandbox.Info)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		if s.state == running {
			f(s.info)
		}
	}
}
