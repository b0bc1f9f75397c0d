package sandboxes

import (
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Rename replaces the tag of a snapshot in the sandboxes that come from it. The list has the new tag even if a record
// cannot be written; the next daemon corrects that record. Failed sandboxes keep the tag of their time.
func Rename(t *Table, hash, tag, to string) (errs error) {
	for _, s := range comeFrom(t, hash, tag) {
		if err := renameBase(s, hash, tag, to); err != nil {
			errs = errors.Join(errs, fmt.Errorf("sandbox %s: %w", s.id, err))
		}
	}
	return errs
}

func comeFrom(t *Table, hash, tag string) (found []*Sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		if s.info.Needs(tag, hash) {
			found = append(found, s)
		}
	}
	return found
}

func renameBase(s *Sandbox, hash, tag, to string) error {
	s.files.Lock()
	defer s.files.Unlock()
	s.table.mu.Lock()
	s.info = withTag(s.info, hash, tag, to)
	rec, st := s.recordLocked(), s.state
	s.table.mu.Unlock()
	if st != running && st != paused {
		return nil
	}
	return s.keep(rec, st)
}

// withTag returns the info with another tag of one snapshot.
func withTag(i sandbox.Info, hash, tag, to string) sandbox.Info {
	if i.SnapshotTag == tag && i.SnapshotHash == hash {
		i.SnapshotTag = to
	}
	if i.RolledBackTo == tag && i.RolledBackHash == hash {
		i.RolledBackTo = to
	}
	return i
}
