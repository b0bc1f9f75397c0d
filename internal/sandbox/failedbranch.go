package sandbox

// maxFailedBranches bounds the list; the oldest go first.
const maxFailedBranches = 100

// listFailed keeps a branch that failed when nobody waited in the list, with its
// reason. Nothing of it is on disk, so the list ends with the daemon.
func (e *Engine) listFailed(tag string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.creating[tag]
	s.Status, s.Warning = SnapshotFailed, err.Error()
	if len(e.failed) >= maxFailedBranches {
		oldest := s
		for _, f := range e.failed {
			if f.CreatedAt.Before(oldest.CreatedAt) {
				oldest = f
			}
		}
		delete(e.failed, oldest.Tag)
	}
	e.failed[tag] = s
}

// forgetFailed takes a failed branch off the list; false when it is not on it.
func (e *Engine) forgetFailed(tag string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, failed := e.failed[tag]
	delete(e.failed, tag)
	return failed
}
