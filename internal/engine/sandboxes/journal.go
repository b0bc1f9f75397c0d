package sandboxes

import (
	"fmt"
	"path/filepath"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

// Record is a sandbox that was or is about to be listed, in its VM's directory.
type Record struct {
	Version int `json:"version"`
	// Dir is the name of the directory that the record is valid in; empty: any. A
	// rollback exchanges two directories, and only then does the record of the
	// new VM hold, and that of the old no more.
	Dir   string           `json:"dir,omitempty"`
	Info  sandbox.Info     `json:"info"`
	Who   sandbox.Identity `json:"who"`
	Disks []vmproc.Disk    `json:"disks,omitempty"` // those that it writes to, in their order
	// Pausing: its guest stands still, or will in a moment, for a pause that may never be whole.
	Pausing bool `json:"pausing,omitempty"`
}

// validIn reports whether the record is about the VM in that directory.
func (r Record) validIn(dir string) bool {
	return r.Version == vmproc.JournalVersion && sandbox.ValidID(r.Info.ID) && (r.Dir == "" || r.Dir == filepath.Base(dir))
}

func (r Record) write(dir string) error {
	if err := vmproc.WriteJSON(filepath.Join(dir, vmproc.SandboxJournal), r); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// recordLocked is what the journal keeps of a sandbox. Table.mu is held, or no other
// goroutine knows the sandbox.
func (s *Sandbox) recordLocked() Record {
	return Record{Version: vmproc.JournalVersion, Dir: filepath.Base(s.dir), Info: s.info, Who: s.who,
		Disks: s.disks.List(), Pausing: s.pausing}
}

// Save writes a running sandbox's journal anew: its disks have changed, or it is being paused.
func (s *Sandbox) Save() error {
	s.files.Lock()
	defer s.files.Unlock()
	s.table.mu.Lock()
	rec := s.recordLocked()
	s.table.mu.Unlock()
	return rec.write(s.dir)
}

// SetNetwork changes what the journal, and the list, say of a sandbox's network. change is
// called once, and sees it as it is.
func (s *Sandbox) SetNetwork(change func(*sandbox.Network)) error {
	_, err := s.change(func(i *sandbox.Info) error { change(&i.Network); return nil })
	return err
}

// SetLife changes for how long a sandbox may run, also of one that is paused.
func (s *Sandbox) SetLife(change func(sandbox.Life) (sandbox.Life, error)) (sandbox.Info, error) {
	return s.change(func(i *sandbox.Info) (err error) { i.Life, err = change(i.Life); return err })
}

// change changes what the journal, or the record of a paused one, and the list say of a sandbox.
func (s *Sandbox) change(change func(*sandbox.Info) error) (sandbox.Info, error) {
	s.files.Lock()
	defer s.files.Unlock()
	s.table.mu.Lock()
	rec, st := s.recordLocked(), s.state
	s.table.mu.Unlock()
	if st == ending {
		return rec.Info, ErrKilled
	}
	if err := change(&rec.Info); err != nil {
		return rec.Info, err
	}
	if err := s.keep(rec, st); err != nil {
		return rec.Info, err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.info = rec.Info // nobody else writes it while files is held
	return s.seenLocked(), nil
}

// keep writes what is known of a sandbox to where its state has it.
func (s *Sandbox) keep(rec Record, st state) error {
	if st == paused {
		return s.table.cfg.Paused.keep(rec.Info, rec.Who, rec.Disks)
	}
	return rec.write(s.dir)
}
