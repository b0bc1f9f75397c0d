package guestfork

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/guestfork/forktree"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// familyOf returns the family of the children a sandbox's guest made.
func (f *Families) familyOf(id string) *forktree.Family {
	f.mu.Lock()
	defer f.mu.Unlock()
	fam := f.families[id]
	if fam == nil {
		fam = forktree.NewFamily(f.endsDir(id))
		if f.cfg.Sandboxes.Lookup(id) != nil { // a removed sandbox's family is not stored
			f.families[id] = fam
		}
	}
	return fam
}

// parentFamily returns the family a sandbox is a child in. It returns nil if the sandbox has no
// parent, or its parent is gone. A parent that failed keeps its family, as it is still listed.
func (f *Families) parentFamily(i sandbox.Info) *forktree.Family {
	if i.Kin.Parent == "" || f.cfg.Sandboxes.Lookup(i.Kin.Parent) == nil {
		return nil
	}
	return f.familyOf(i.Kin.Parent)
}

// Adding is called before a sandbox is listed, so that its end cannot come first.
func (f *Families) Adding(i sandbox.Info) {
	if fam := f.parentFamily(i); fam != nil {
		fam.AddChild(i.ID, i.Index, i.Kin.Token)
	}
}

// Dropped is called when a sandbox was not listed after all.
func (f *Families) Dropped(i sandbox.Info) {
	if fam := f.parentFamily(i); fam != nil {
		fam.DropChild(i.ID)
	}
}

// Ended is called when the VM of any sandbox has ended. If killed is set, the sandbox has been
// removed completely.
func (f *Families) Ended(i sandbox.Info, killed bool) {
	if !killed {
		f.childEnded(i, forkwire.Died, i.Reason)
		return
	}
	f.forget(i.ID)
	f.childEnded(i, forkwire.Killed, "")
}

func (f *Families) childEnded(i sandbox.Info, how forkwire.Status, reason string) {
	if fam := f.parentFamily(i); fam != nil {
		// Without a result the only possible error is that the file was not written.
		_ = fam.Ended(i.ID, how, -1, reason, nil)
	}
	f.SweepLater() // its base may now be unused
}

// Adopt restores the families. It is called after all sandboxes are found, and before another
// goroutine uses the families.
func (f *Families) Adopt() error {
	kept, err := f.sweepEnds()
	if err != nil {
		return err
	}
	for _, id := range kept { // others need no family yet: there may be a thousand paused sandboxes
		if err := f.familyOf(id).Load(); err != nil {
			f.cfg.Log.Warn("children that had ended are lost", "sandbox", id, "err", err)
		}
	}
	for _, b := range f.cfg.Sandboxes.All() {
		info := b.Info()
		fam := f.parentFamily(info)
		switch {
		case fam == nil:
		case info.Status == sandbox.StatusRunning, info.Status == sandbox.StatusPaused:
			if fam.AddChild(info.ID, info.Index, info.Kin.Token) { // the previous daemon recorded its end, but did not end it
				defer f.cfg.Sandboxes.End(b)
			}
		case b.DiedUnseen(): // for other failed children, the end was recorded, and may have been collected
			fam.AddChild(info.ID, info.Index, info.Kin.Token)
			f.childEnded(info, forkwire.Died, info.Reason)
		}
	}
	return nil
}
