package guestfork

import (
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/sys/rundir"
)

// Names created by this package in the run directory and below it. Only these are removed; foreign
// names are left and logged.
const familyName = "family" // of a folder for each sandbox with children that have ended

var endedName = regexp.MustCompile(`^ended-` + sandbox.IDPattern + `(\.tmp)?$`)

// endsDir returns the directory where a sandbox's ended children wait to be collected. It is not in
// the VM's run directory, because a sandbox can get another VM.
func (f *Families) endsDir(id string) string { return filepath.Join(f.cfg.RunDir, familyName, id) }

// forget removes the records of a removed sandbox's children. The children live on.
func (f *Families) forget(id string) {
	f.mu.Lock()
	delete(f.families, id)
	f.mu.Unlock()
	all, err := f.cfg.Run.Sub(familyName)
	if err != nil {
		f.cfg.Log.Warn("remove ends of children", "sandbox", id, "err", err)
		return
	}
	defer all.Close()
	f.removeEnds(all, id)
}

func (f *Families) removeEnds(all *rundir.Dir, id string) {
	left, err := all.Remove(id, endedName.MatchString)
	if err != nil || len(left) > 0 {
		f.cfg.Log.Warn("remove a directory: something is left in it", "path", f.endsDir(id), "left", left, "err", err)
	}
}

// sweepEnds removes the records of removed sandboxes, and returns the sandboxes with records that
// are kept.
func (f *Families) sweepEnds() (kept []string, err error) {
	all, err := f.cfg.Run.Sub(familyName)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	names, err := all.Names()
	if err != nil {
		return nil, fmt.Errorf("list ends of children: %w", err)
	}
	for _, id := range names {
		switch {
		case !sandbox.ValidID(id):
			f.cfg.Log.Warn("left alone: not the ends of a sandbox's children", "path", f.endsDir(id))
		case f.cfg.Sandboxes.Lookup(id) == nil:
			f.removeEnds(all, id)
		default:
			kept = append(kept, id)
		}
	}
	return kept, nil
}
