package catalog

import (
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// tagTable is the catalog's in-memory state: running operations on tags, and retired snapshots. It
// calls no other package, and does not know the state on disk.
type tagTable struct {
	// mu guards the fields below. No other lock is taken under it, and the disk is not read.
	mu sync.Mutex
	// entries holds the tags with running operations.
	entries map[string]*entry
	// uses counts the successful calls of use, see Catalog.claim.
	uses uint64
	// retired maps content hashes of snapshots deleted while in use to their former tags.
	retired map[string]string
}

func newTagTable(retired map[string]string) *tagTable {
	return &tagTable{entries: map[string]*entry{}, retired: retired}
}

// get returns a copy of a tag's entry, or the zero value if the tag is idle.
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

// move applies an event to a tag.
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
	case writing, deleting, renaming:
		next.settled = make(chan struct{})
	case failed:
		next.info = e.info
	}
	*e = next
	t.entries[tag] = e
	t.pruneLocked(tag)
	return e, nil
}

// pruneLocked removes the entry of a tag without running operations.
func (t *tagTable) pruneLocked(tag string) {
	if e := t.entries[tag]; e != nil && e.state == idle && e.users == 0 {
		delete(t.entries, tag)
	}
}

// listed returns the snapshots that exist only in memory: being written, or failed.
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
