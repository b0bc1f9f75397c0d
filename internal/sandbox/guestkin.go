package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/agentproto/forkwire"
	"github.com/forkd/forkd/internal/sandbox/forktree"
)

// familyDir is where children that ended wait to be collected. It is not in the
// VM's run directory: a sandbox can get another VM.
func (e *Engine) familyDir(id string) string { return filepath.Join(e.cfg.RunDir, "family", id) }

// familyOf is what is known of the children that a sandbox's guest made.
func (e *Engine) familyOf(b *box) *forktree.Family {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.family == nil {
		b.family = forktree.NewFamily(e.familyDir(b.info.ID))
	}
	return b.family
}

func (e *Engine) infoOf(b *box) Info {
	e.mu.Lock()
	defer e.mu.Unlock()
	return b.info
}

// parentFamily is the family that a sandbox is a child in; nil if it is nobody's,
// or its parent is gone. A parent that failed keeps its family: it is listed.
func (e *Engine) parentFamily(i Info) *forktree.Family {
	if i.Kin.Parent == "" {
		return nil
	}
	e.mu.Lock()
	parent := e.boxes[i.Kin.Parent]
	e.mu.Unlock()
	if parent == nil {
		return nil
	}
	return e.familyOf(parent)
}

// kidBorn is called before a sandbox is listed, so that its end cannot come first.
func (e *Engine) kidBorn(i Info) {
	if f := e.parentFamily(i); f != nil {
		f.Born(i.ID, i.Index, i.Kin.Token)
	}
}

func (e *Engine) kidUnborn(i Info) {
	if f := e.parentFamily(i); f != nil {
		f.Unborn(i.ID)
	}
}

// kidEnded is called when a sandbox has ended, whoever's it was.
func (e *Engine) kidEnded(i Info, how forkwire.Status, reason string) {
	if f := e.parentFamily(i); f != nil {
		// Without a result nothing can go wrong but the file's being kept.
		_ = f.Ended(i.ID, how, -1, reason, nil)
	}
	e.guests.kick() // what it ran from may be needed no more
}

// forgetFamily removes what a sandbox that is gone knew of its children. They
// live on.
func (e *Engine) forgetFamily(id string) {
	if err := os.RemoveAll(e.familyDir(id)); err != nil {
		e.cfg.Logger.Warn("remove ends of children", "sandbox", id, "err", err)
	}
}

// sweepFamilies removes those of sandboxes that are gone.
func (e *Engine) sweepFamilies() {
	entries, err := os.ReadDir(filepath.Dir(e.familyDir("any")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.cfg.Logger.Warn("list ends of children", "err", err)
	}
	for _, en := range entries {
		if e.boxes[en.Name()] == nil {
			e.forgetFamily(en.Name())
		}
	}
}

// adoptFamilies brings back who is whose child after all sandboxes are found.
// No other goroutine knows them yet.
func (e *Engine) adoptFamilies() {
	e.sweepFamilies()
	for _, b := range e.boxes {
		if err := e.familyOf(b).Load(); err != nil {
			e.cfg.Logger.Warn("children that had ended are lost", "sandbox", b.info.ID, "err", err)
		}
	}
	var exited []*box
	for _, b := range e.boxes {
		f := e.parentFamily(b.info)
		switch {
		case f == nil:
		case b.info.Status == StatusRunning:
			if f.Born(b.info.ID, b.info.Index, b.info.Kin.Token) {
				exited = append(exited, b)
			}
		case b.diedUnseen: // of others that failed, the end was kept, and may be collected
			f.Born(b.info.ID, b.info.Index, b.info.Kin.Token)
			e.kidEnded(b.info, forkwire.Died, b.info.Reason)
		}
	}
	for _, b := range exited { // the last daemon kept its end and did not come to this
		e.killBox(b)
	}
}
