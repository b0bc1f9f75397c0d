package vmproc

import (
	"context"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// adoptTimeout bounds the time until one VMM answers its new daemon.
const adoptTimeout = 10 * time.Second

// Left is a VM left by an earlier daemon in the run directory. It may still run; otherwise only its
// owner's journal is left.
type Left struct {
	// Dir is the path of the VM's directory.
	Dir string
	rec Record
}

// Left lists the VMs' directories. Their names are not used for new VMs.
func (s *Supervisor) Left() ([]string, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	dirs := make([]string, len(names))
	for i, name := range names {
		s.noteVM(name)
		dirs[i] = filepath.Join(s.dir(), name)
	}
	return dirs, nil
}

// Look reads a directory's journal. It trusts only the parts it can check: a process that is not
// that directory's VMM is left alone. It returns false if the directory has no VM.
func (s *Supervisor) Look(dir string) (_ Left, ok bool) {
	l := Left{Dir: dir}
	if ReadJSON(filepath.Join(dir, Journal), &l.rec) != nil || l.rec.Version != JournalVersion {
		s.removeDir(dir) // died before it had a VM
		return l, false
	}
	l.rec.Ref.Dir = dir
	if err := l.rec.Ref.Check(s.cfg.Binary); err != nil {
		s.cfg.Log.Warn("ignored: its journal names a process that is not its VMM", "dir", dir, "err", err)
		return l, false
	}
	s.noteCID(l.rec.CID)
	return l, true
}

// Adopt takes over a running VM. The caller of Own becomes its owner.
func (s *Supervisor) Adopt(ctx context.Context, l Left, disks *Disks) (*VM, error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	dial, started := s.cfg.Dialer()
	proc, err := client.Adopt(ctx, l.rec.Ref, dial)
	if err != nil {
		return nil, err
	}
	started(proc)
	m := &VM{sup: s, Proc: proc, Dir: l.Dir, Shape: l.rec.Shape, CID: l.rec.CID, Disks: disks}
	m.group.Store(s.find(l.rec.Group))
	// Most guests have been used, and have the memory from that. Populating more pages would stop
	// them.
	m.evaluated.Store(true)
	m.executed.Store(true)
	m.watch()
	return m, nil
}

// KilledFor returns the reason if the kernel killed an ended VM for lack of memory.
func (s *Supervisor) KilledFor(l Left) string {
	if g := s.find(l.rec.Group); g != nil {
		return killed(g.Group)
	}
	return ""
}

// Kill ends it, if it still runs.
func (l Left) Kill() error { return l.rec.Ref.Kill() }

// ClearAway ends a VM without an owner.
func (s *Supervisor) ClearAway(l Left) {
	if err := l.Kill(); err != nil {
		s.cfg.Log.Warn("end a leftover VM", "dir", l.Dir, "err", err)
		return // its directory is kept: the next daemon tries again
	}
	s.removeDir(l.Dir)
}
