package vmproc

// NoteOutage records why content of the VM's snapshot does not arrive. The VM's reads of it block, so its sandbox is
// listed as stalled. An empty reason ends the outage.
func (m *VM) NoteOutage(reason string) {
	m.health.mu.Lock()
	defer m.health.mu.Unlock()
	m.health.outage = reason
}

// Outage returns the reason of the present outage, or an empty text.
func (m *VM) Outage() string {
	m.health.mu.Lock()
	defer m.health.mu.Unlock()
	return m.health.outage
}
