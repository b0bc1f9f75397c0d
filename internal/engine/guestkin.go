package engine

import (
	"path/filepath"

	"github.com/forkd/forkd/internal/agentproto/forkwire"
	"github.com/forkd/forkd/internal/engine/guestfork/forktree"
	"github.com/forkd/forkd/internal/sandbox"
)

// familyDir is where children that ended wait to be collected. It is not in the
// VM's run directory: a sandbox can get another VM.
func (e *Engine) familyDir(id string) string { return filepath.Join(e.cfg.RunDir, familyName, id) }

// familyOf is what is known of the children that a sandbox's guest made.
func (e *Engine) familyOf(id string) *forktree.Family {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.guests.families[id]
	if f == nil {
		f = forktree.NewFamily(e.familyDir(id))
		if e.sandboxes.Lookup(id) != nil { // of one that is gone nothing is kept
			e.guests.families[id] = f
		}
	}
	return f
}

// parentFamily is the family that a sandbox is a child in; nil if it is nobody's,
// or its parent is gone. A parent that failed keeps its family: it is listed.
func (e *Engine) parentFamily(i sandbox.Info) *forktree.Family {
	if i.Kin.Parent == "" || e.sandboxes.Lookup(i.Kin.Parent) == nil {
		return nil
	}
	return e.familyOf(i.Kin.Parent)
}

// addChild is called before a sandbox is listed, so that its end cannot come first.
func (e *Engine) addChild(i sandbox.Info) {
	if f := e.parentFamily(i); f != nil {
		f.AddChild(i.ID, i.Index, i.Kin.Token)
	}
}

func (e *Engine) dropChild(i sandbox.Info) {
	if f := e.parentFamily(i); f != nil {
		f.DropChild(i.ID)
	}
}

// childExited is called when a sandbox has ended, whoever's it was.
func (e *Engine) childExited(i sandbox.Info, how forkwire.Status, reason string) {
	if f := e.parentFamily(i); f != nil {
		// Without a result nothing can go wrong but the file's being kept.
		_ = f.Ended(i.ID, how, -1, reason, nil)
	}
	e.guests.kick() // what it ran from may be needed no more
}

// adoptFamilies brings back who is whose child after all sandboxes are found.
// No other goroutine knows them yet.
func (e *Engine) adoptFamilies() error {
	if err := e.sweepFamilies(); err != nil {
		return err
	}
	all := e.sandboxes.All()
	for _, b := range all {
		if err := e.familyOf(b.ID()).Load(); err != nil {
			e.cfg.Logger.Warn("children that had ended are lost", "sandbox", b.ID(), "err", err)
		}
	}
	for _, b := range all {
		info := b.Info()
		f := e.parentFamily(info)
		switch {
		case f == nil:
		case info.Status == sandbox.StatusRunning:
			if f.AddChild(info.ID, info.Index, info.Kin.Token) { // the last daemon kept its end and did not come to this
				defer e.sandboxes.End(b)
			}
		case b.DiedUnseen(): // of others that failed, the end was kept, and may be collected
			f.AddChild(info.ID, info.Index, info.Kin.Token)
			e.childExited(info, forkwire.Died, info.Reason)
		}
	}
	return nil
}
