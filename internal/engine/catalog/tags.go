package catalog

import (
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// tagTable is what the catalog has in memory: what is under way for its tags, and which
// snapshots have lost theirs. It asks nobody, and does not know what there is on disk.
type tagTable struct {
	// mu guards what follows. No other lock is taken under it, and the disk is not read.
	mu sync.Mutex
	// entries are of the tags for which something is under way.
	entries map[string]*entry
	// uses counts the calls of use that succeeded, see Catalog.claim.
	uses uint64
	// retired are the snapshots that were deleted while in use: their former tags, by content hash.
	retired map[string]string
}

func newTagTable(retired map[string]string) *tagTable {
	return &tagTable{entries: map[string]*entry{}, retired: retired}
}

// get is what there is of a tag; of an idle one the zero value. It is a copy.
func (t *tagTable) get(tag string) entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entryLocked(tag)
}

func (t *tagTable) entryLocked(tag string) entry {
	if e := t.entries[tag]; e != nil {
		return *e
	}
	return entry{}
}

// move brings a tag to the state that an event leads to.
func (t *tagTable) move(tag string, ev event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.moveLocked(tag, ev)
	return err
}

func (t *tagTable) moveLocked(tag string, ev event) (*entry, error) {
	e := t.entries[tag]
	if e == nil {
		e = &entry{}
	}
	to, legal := moves[e.state][ev]
	if !legal {
		return nil, sandbox.Errorf(sandbox.ErrConflict, "", "snapshot %s is %s", tag, e.state)
	}
	if e.settled != nil {
		close(e.settled)
	}
	next := entry{state: to, users: e.users}
	switch to {
	case writing, deleting:
		next.settled = make(chan struct{})
	case failed:
		next.info = e.info
	}
	*e = next
	t.entries[tag] = e
	t.pruneLocked(tag)
	return e, nil
}

// pruneLocked forgets a tag for which nothing is under way.
func (t *tagTable) pruneLocked(tag string) {
	if e := t.entries[tag]; e != nil && e.state == idle && e.users == 0 {
		delete(t.entries, tag)
	}
}

// listed are the snapshots that are in memory only: being written, or failed.
func (t *tagTable) listed() []sandbox.SnapshotInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []sandbox.SnapshotInfo
	for _, e := range t.entries {
		if e.state == writing || e.state == failed {
			out = append(out, e.info)
		}
	}
	return out
}
