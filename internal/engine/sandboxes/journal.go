package sandboxes

import (
	"fmt"
	"path/filepath"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

// Record is the journal record of a sandbox in its VM's directory. The sandbox was listed or was
// about to be.
type Record struct {
	// Version is vmproc.JournalVersion. A record with another version is invalid.
	Version int `json:"version"`
	// Dir is the name of the directory the record is valid in. If empty, it is valid in any. A
	// rollback exchanges two directories. Only then does the record of the new VM become valid and
	// the record of the old VM invalid.
	Dir   string           `json:"dir,omitempty"`
	Info  sandbox.Info     `json:"info"`            // as listed, with the PID of this VM
	Who   sandbox.Identity `json:"who"`             // identity that its guest has
	Disks []vmproc.Disk    `json:"disks,omitempty"` // writable disks, in order
	// Pausing marks a sandbox with a guest that is stopped, or about to be, for a pause that may
	// never complete.
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

// recordLocked returns the journal record of a sandbox. The caller holds Table.mu, or no other
// goroutine knows the sandbox.
func (s *Sandbox) recordLocked() Record {
	return Record{Version: vmproc.JournalVersion, Dir: filepath.Base(s.dir), Info: s.info, Who: s.who,
		Disks: s.disks.List(), Pausing: s.pausing}
}

// Save rewrites a running sandbox's journal after a change of its disks or at the start of a pause.
func (s *Sandbox) Save() error {
	s.files.Lock()
	defer s.files.Unlock()
	s.table.mu.Lock()
	rec := s.recordLocked()
	s.table.mu.Unlock()
	return rec.write(s.dir)
}

// SetNetwork changes a sandbox's network in the journal and in the list. It calls change once, with
// the current value.
func (s *Sandbox) SetNetwork(change func(*sandbox.Network)) error {
	_, err := s.change(func(i *sandbox.Info) error { change(&i.Network); return nil })
	return err
}

// SetLife changes how long a sandbox may run, also if it is paused.
func (s *Sandbox) SetLife(change func(sandbox.Life) (sandbox.Life, error)) (sandbox.Info, error) {
	return s.change(func(i *sandbox.Info) (err error) { i.Life, err = change(i.Life); return err })
}

// SetLabels changes a sandbox's labels, also if it is paused.
func SetLabels(s *Sandbox, change func(map[string]string) (map[string]string, error)) (sandbox.Info, error) {
	return s.change(func(i *sandbox.Info) (err error) { i.Labels, err = change(i.Labels); return err })
}

// SetVolumes changes the list of a sandbox's volumes.
func SetVolumes(s *Sandbox, change func([]sandbox.Volume) []sandbox.Volume) error {
	_, err := s.change(func(i *sandbox.Info) error { i.Volumes = change(i.Volumes); return nil })
	return err
}

// SetServices replaces the services that a sandbox's guest has reported, and returns the previous ones.
func SetServices(s *Sandbox, now []sandbox.Service) (before []sandbox.Service) {
	s.table.mu.Lock()
	before = s.rareLocked().services
	if len(now) > 0 || len(before) > 0 {
		s.makeRareLocked().services = now
	}
	known := s.info.HasServices
	s.table.mu.Unlock()
	if has := len(now) > 0; has != known {
		if _, err := s.change(func(i *sandbox.Info) error { i.HasServices = has; return nil }); err != nil {
			s.table.cfg.Log.Warn("record that a sandbox has services", "sandbox", s.id, "err", err)
		}
	}
	return before
}

// SetPromoting records whether a sandbox is paused only to be promoted.
func (s *Sandbox) SetPromoting(on bool) error {
	_, err := s.change(func(i *sandbox.Info) error { i.Promoting = on; return nil })
	return err
}

// change changes a sandbox in its journal, or in its record if it is paused, and in the list.
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
	s.info = rec.Info // no other writer while files is held
	return s.seenLocked(), nil
}

// keep writes a sandbox's record to the place for its state.
func (s *Sandbox) keep(rec Record, st state) error {
	if st == paused {
		return s.table.cfg.Paused.keep(rec.Info, rec.Who, rec.Disks)
	}
	return rec.write(s.dir)
}
