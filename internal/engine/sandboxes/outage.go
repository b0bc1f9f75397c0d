package sandboxes

import "maps"

// NoteOutages records the sandboxes for which content of their snapshot does not arrive, by their ID, with the reason.
// For all others it ends an outage.
func NoteOutages(t *Table, reasons map[string]string) {
	t.mu.Lock()
	all := maps.Clone(t.all)
	t.mu.Unlock()
	for id, s := range all {
		t.mu.Lock()
		vm := s.vm
		t.mu.Unlock()
		if vm != nil && vm.Outage() != reasons[id] {
			vm.NoteOutage(reasons[id])
		}
	}
}
