package sandboxes

import (
	"slices"

	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/snapshot"
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

// PinLayers keeps a snapshot's layers for the sandboxes that run from it.
func (t *Table) PinLayers(of snapshot.Entry) error {
	for _, id := range t.Using(of.Tag, of.ContentHash) {
		s, vm, err := t.Running(id)
		if err != nil {
			continue // it has ended
		}
		if _, hash := s.Info().Base(); hash != of.ContentHash {
			continue
		}
		ids := of.Manifest.LayerIDs()
		for _, d := range vm.Disks.List() {
			ids = append(ids, d.Backing...)
		}
		if err := t.Pin(s, vm, ids); err != nil {
			return err
		}
	}
	return nil
}

// NotePin notes, of an adopted sandbox, that it has a pin; false: there is no such sandbox.
func (t *Table) NotePin(id string) bool {
	s := t.Lookup(id)
	if s == nil {
		return false
	}
	s.Disks().SetPinned()
	return true
}

// Using are the sandboxes that run from a snapshot, sorted. The tag may be another
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
	slices.Sort(ids)
	return ids
}

// Bases are the content hashes of the snapshots that running sandboxes lie over.
func (t *Table) Bases() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	bases := map[string]bool{}
	for _, s := range t.all {
		if s.state == running {
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
