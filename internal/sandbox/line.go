package sandbox

import (
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/snapshot"
)

// line is the snapshots that a sandbox may be rolled back to, by tag, with their
// content hashes: those that it came from, and those branched from itself.
type line map[string]string

// lineOf finds a sandbox's line among the snapshots that can be restored. A tag
// that was given to another snapshot since is not in it.
func lineOf(info Info, entries []snapshot.Entry) line {
	stored := map[string]snapshot.Entry{}
	for _, en := range entries {
		if en.Err == nil {
			stored[en.Tag] = en
		}
	}
	l := line{}
	l.climb(info.SnapshotTag, info.SnapshotHash, stored)
	l.climb(info.RolledBackTo, info.RolledBackHash, stored)
	for tag, en := range stored {
		if b := en.Manifest.Branch; b != nil && b.Sandbox == info.ID {
			l[tag] = en.ContentHash
		}
	}
	return l
}

// climb adds a snapshot and its ancestors, as far as they are there.
func (l line) climb(tag, hash string, stored map[string]snapshot.Entry) {
	for {
		en, ok := stored[tag]
		if !ok || en.ContentHash != hash || l[tag] != "" {
			return
		}
		l[tag] = hash
		p := en.Manifest.Parent
		if p == nil {
			return
		}
		tag, hash = p.Tag, p.ContentHash
	}
}

// String lists at most a few tags, for people.
func (l line) String() string {
	const most = 20
	tags := make([]string, 0, len(l))
	for tag := range l {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	if len(tags) > most {
		tags = append(tags[:most], "and more")
	}
	return strings.Join(tags, ", ")
}

// checkLine refuses a tag that a sandbox did not come from, and names those that would do.
func (e *Engine) checkLine(info Info, tag string) error {
	entries, err := e.store.List()
	if err != nil {
		return storeError(err)
	}
	l := lineOf(info, entries)
	if l[tag] != "" {
		return nil
	}
	hint := "no snapshot of its line is left"
	if len(l) > 0 {
		hint = "these would do: " + l.String()
	}
	for _, en := range entries {
		switch {
		case en.Tag != tag:
		case en.Err != nil:
			return storeError(en.Err)
		default:
			return problem(ErrConflict, hint, "sandbox %s did not come from snapshot %s, and that was not branched from it; %s", info.ID, tag, hint)
		}
	}
	return problem(ErrNotFound, hint, "snapshot %s not found; %s", tag, hint)
}
