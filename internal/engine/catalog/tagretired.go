package catalog

// Retired snapshots, which have lost their tags, by content hash; see retire.go.

func (t *tagTable) retire(tag, hash string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retired[hash] = tag
}

func (t *tagTable) forgetRetired(hash string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.retired, hash)
}

func (t *tagTable) isRetired(hash string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, retired := t.retired[hash]
	return retired
}

// retiring returns a channel that is closed when a snapshot's tag has been removed, or nil if it is
// not just being removed.
func (t *tagTable) retiring(tag, hash string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entryLocked(tag)
	if _, retired := t.retired[hash]; !retired || e.state != deleting {
		return nil
	}
	return e.settled
}

// retiredWithoutForks returns the content hashes of the retired snapshots not used by any fork. It
// omits snapshots being retired right now.
func (t *tagTable) retiredWithoutForks() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var hashes []string
	for hash, tag := range t.retired {
		if e := t.entryLocked(tag); e.users == 0 && e.state != deleting {
			hashes = append(hashes, hash)
		}
	}
	return hashes
}
