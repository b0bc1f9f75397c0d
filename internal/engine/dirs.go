package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/rundir"
	"github.com/forkd/forkd/internal/sandbox"
)

// What lies in the run directory decides which processes are ended and which files
// are removed. So the directory must be this user's alone (package rundir), only names
// that are made here are removed, and what is not ours is left and told.

// Names that this package makes in RunDir and below it, and in the store's own/.
const familyName = "family" // of a folder for each sandbox with children that have ended

var endedName = regexp.MustCompile(`^ended-sb-[0-9a-f]{8}-[0-9]{4,}(\.tmp)?$`)

// openDirs opens the engine's directories and locks them: only one engine works on each.
func (e *Engine) openDirs() (err error) {
	defer func() {
		if err != nil {
			e.closeDirs()
		}
	}()
	if err := rundir.CheckData(e.cfg.StoreDir); err != nil {
		return dirError(err)
	}
	if e.run, err = rundir.Open(e.cfg.RunDir); err != nil {
		return dirError(err)
	}
	if e.vms, err = e.run.Sub(vmproc.VMsName); err != nil {
		return dirError(err)
	}
	if err := e.lock(e.cfg.StoreDir, func() (*os.File, error) { return rundir.LockData(e.cfg.StoreDir) }); err != nil {
		return err
	}
	return e.lock(e.cfg.RunDir, e.run.Lock)
}

func dirError(err error) error {
	if errors.Is(err, rundir.ErrRefused) {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonDirectoryRefused, "%w", err)
	}
	return err
}

// lock makes sure that no other engine works on the directory.
func (e *Engine) lock(dir string, take func() (*os.File, error)) error {
	f, err := take()
	if errors.Is(err, os.ErrExist) {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonDirectoryInUse, "another daemon uses %s", dir)
	}
	if err != nil {
		return dirError(err)
	}
	e.locks = append(e.locks, f)
	return nil
}

func (e *Engine) closeDirs() {
	for _, d := range []*rundir.Dir{e.vms, e.run} {
		if d != nil {
			d.Close()
		}
	}
	for _, f := range e.locks {
		f.Close()
	}
	e.locks = nil
}

// forgetFamily removes what a sandbox that is gone knew of its children. They
// live on.
func (e *Engine) forgetFamily(id string) {
	e.mu.Lock()
	delete(e.guests.families, id)
	e.mu.Unlock()
	families, err := e.run.Sub(familyName)
	if err != nil {
		e.cfg.Logger.Warn("remove ends of children", "sandbox", id, "err", err)
		return
	}
	defer families.Close()
	e.removeEnds(families, id)
}

func (e *Engine) removeEnds(families *rundir.Dir, id string) {
	left, err := families.Remove(id, endedName.MatchString)
	if err != nil || len(left) > 0 {
		e.cfg.Logger.Warn("remove a directory: something is left in it", "path", filepath.Join(e.cfg.RunDir, familyName, id), "left", left, "err", err)
	}
}

// sweepFamilies removes those of sandboxes that are gone.
func (e *Engine) sweepFamilies() error {
	families, err := e.run.Sub(familyName)
	if err != nil {
		return dirError(err)
	}
	defer families.Close()
	names, err := families.Names()
	if err != nil {
		return fmt.Errorf("list ends of children: %w", err)
	}
	for _, id := range names {
		switch {
		case !sandboxes.ValidID(id):
			e.cfg.Logger.Warn("left alone: not the ends of a sandbox's children", "path", filepath.Join(e.cfg.RunDir, familyName, id))
		case e.sandboxes.Lookup(id) == nil:
			e.removeEnds(families, id)
		}
	}
	return nil
}
