package catalog

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Atomic changes of the tag table by forks, drafts and deletions.

// use counts a fork from a tag, unless the tag's state forbids it.
func (t *tagTable) use(tag string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[tag]
	if e == nil {
		e = &entry{}
		t.entries[tag] = e
	}
	if err := e.refusal(tag); err != nil {
		return err
	}
	e.users++
	t.uses++
	return nil
}

// leave ends a use. It returns true if no fork uses the tag any more, and a retired snapshot had
// the tag.
func (t *tagTable) leave(tag string) (lostTag bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[tag]
	if e.users--; e.users > 0 {
		return false
	}
	t.pruneLocked(tag)
	for _, former := range t.retired {
		if former == tag {
			return true
		}
	}
	return false
}

// begin takes a tag for a draft, and lists it with info.
func (t *tagTable) begin(info sandbox.SnapshotInfo, forksWait bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, err := t.moveLocked(info.Tag, begin)
	if err == nil {
		e.info, e.forksWait = info, forksWait
	}
	return err
}

// free ends a draft. For the event fail, the tag stays listed as failed, with reason.
func (t *tagTable) free(tag string, ev event, reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, err := t.moveLocked(tag, ev)
	if err != nil {
		panic(err) // only its draft moves the tag from writing
	}
	if ev == fail {
		e.info.Status, e.info.Warning = sandbox.SnapshotFailed, reason.Error()
		t.boundFailedLocked()
	}
}

// maxFailed limits the listed failed branches. The oldest is removed first.
const maxFailed = 100

func (t *tagTable) boundFailedLocked() {
	var oldest *entry
	n := 0
	for _, e := range t.entries {
		if e.state != failed {
			continue
		}
		if n++; oldest == nil || e.info.CreatedAt.Before(oldest.info.CreatedAt) {
			oldest = e
		}
	}
	if n > maxFailed {
		t.forgetLocked(oldest.info.Tag)
	}
}

// forgetLocked removes a failed branch from the list. It returns false if it is not listed.
func (t *tagTable) forgetLocked(tag string) bool {
	_, err := t.moveLocked(tag, forget)
	return err == nil
}

func (t *tagTable) forgetFailed(tag string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.forgetLocked(tag)
}

// rename claims a tag for a renaming, unless a fork from it is running.
func (t *tagTable) rename(tag string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entryLocked(tag)
	if e.state == failed {
		return e.refusal(tag)
	}
	if e.users > 0 {
		return sandbox.Errorf(sandbox.ErrConflict, "",
			"snapshot %s is in use by an operation, such as a fork or a branch: rename it when that has ended", tag)
	}
	_, err := t.moveLocked(tag, rename)
	return err
}

// of returns an atomic copy of the entries of several tags, and the number of uses so far.
func (t *tagTable) of(victims []snapshot.Entry) (uses uint64, entries []entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range victims {
		entries = append(entries, t.entryLocked(v.Tag))
	}
	return t.uses, entries
}

// claimSince claims all snapshots. It claims none of them if a fork has begun since that number of
// uses.
func (t *tagTable) claimSince(uses uint64, victims []snapshot.Entry, force bool) (claimed bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if uses != t.uses && !force {
		return false, nil
	}
	for i, v := range victims {
		if _, err := t.moveLocked(v.Tag, remove); err != nil {
			t.unclaimLocked(victims[:i])
			return false, err
		}
	}
	return true, nil
}

func (t *tagTable) unclaim(victims []snapshot.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unclaimLocked(victims)
}

func (t *tagTable) unclaimLocked(victims []snapshot.Entry) {
	for _, v := range victims {
		_, _ = t.moveLocked(v.Tag, removed) // legal: this deletion has claimed it
	}
}
