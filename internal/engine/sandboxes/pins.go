package sandboxes

import (
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Pin pins layers for a sandbox until it ends.
func (t *Table) Pin(s *Sandbox, vm *vmproc.VM, layers []layer.ID) error {
	if err := t.cfg.Pin(s.id, layers); err != nil {
		return err
	}
	vm.Disks.SetPinned()
	if s.isEnding() { // the kill may not have known of the pin
		t.cfg.Unpin(s.id)
	}
	return nil
}

// PinLayers pins a snapshot's layers for the sandboxes based on it.
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
	for _, d := range disks.List() { // also if it is paused without its memory
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
	s.Disks().SetPinned() // after the pin: if it was resumed meanwhile, these are the new VM's disks
	if s.isEnding() {
		t.cfg.Unpin(s.id)
	}
	return nil
}

// NotePin records that an adopted sandbox has a pin. It returns false if there is no such sandbox.
func (t *Table) NotePin(id string) bool {
	if t.isUnread(id) { // it may need the layers
		return true
	}
	s := t.Lookup(id)
	if s == nil {
		return false
	}
	s.Disks().SetPinned()
	return true
}

// Using returns the ids of the sandboxes running from a snapshot or paused in it, sorted. The tag
// may have been reused for another snapshot. If hash is empty, any snapshot of the tag matches.
func (t *Table) Using(tag, hash string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for id, s := range t.all {
		if s.info.Needs(tag, hash) && s.state != ending {
			ids = append(ids, id)
		}
	}
	for id, of := range t.arriving {
		if tag == of.tag {
			ids = append(ids, id)
		}
	}
	for id := range t.unread {
		if sandbox.PausedIn(tag) == id {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Bases returns the content hashes of the base snapshots of running and paused sandboxes.
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

// Each calls f for every running sandbox. f must be short and take no lock.
func (t *Table) Each(f func(sandbox.Info)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		if s.state == running {
			f(s.info)
		}
	}
}
