package sandboxes

import (
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/sandbox"
)

// ValidID tells a sandbox's id from other names.
var ValidID = regexp.MustCompile(`^sb-[0-9a-f]{8}-[0-9]{4,}$`).MatchString

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
}

// validIn reports whether the record is about the VM in that directory.
func (r Record) validIn(dir string) bool {
	return r.Version == vmproc.JournalVersion && ValidID(r.Info.ID) && (r.Dir == "" || r.Dir == filepath.Base(dir))
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
		Disks: s.disks.List()}
}

// SaveDisks writes a listed sandbox's journal anew: its disks have changed.
func (s *Sandbox) SaveDisks() error {
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
	s.files.Lock()
	defer s.files.Unlock()
	s.table.mu.Lock()
	rec := s.recordLocked()
	s.table.mu.Unlock()
	change(&rec.Info.Network)
	if err := rec.write(s.dir); err != nil {
		return err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.info.Network = rec.Info.Network
	return nil
}
