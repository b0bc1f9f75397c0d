package sandboxes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/sys/durable"
)

// A paused sandbox consists of a snapshot and a record in the store
// (docs/inside/formats/paused.md). Writing the record is the commit point: while the record exists
// the sandbox is paused, even if the run directory still has a VM of it.

// Versions of the records. A record of a sandbox paused without its memory has its own version: a
// daemon that does not support it would otherwise resume the sandbox with an outdated memory.
const (
	pausedVersion = 1
	coldVersion   = 2
	// movedVersion is of a sandbox that another daemon has taken (moved.go).
	movedVersion = 3
)

// maxPaused limits the size of a record that is read.
const maxPaused = 1 << 20

type pausedRecord struct {
	Version int              `json:"version"`
	Info    sandbox.Info     `json:"info"`
	Who     sandbox.Identity `json:"who"`
	// Disks are the writable disks of a sandbox paused without its memory: layers, with no overlay
	// file yet.
	Disks []vmproc.Disk `json:"disks,omitempty"`
	// Claim is of a sandbox that is being taken from another daemon.
	Claim *Claim `json:"claim,omitempty"`
	// Moved is of a sandbox that another daemon has taken. The record then has no other field.
	Moved *Moved `json:"moved,omitempty"`
}

const (
	pausedSuffix = ".json"
	tmpSuffix    = ".tmp"
)

// PausedDir is the directory of the records.
type PausedDir string

func (d PausedDir) file(id string) string { return filepath.Join(string(d), id+pausedSuffix) }

// keep writes the record of a paused sandbox.
func (d PausedDir) keep(info sandbox.Info, who sandbox.Identity, disks []vmproc.Disk) error {
	rec := pausedRecord{Version: pausedVersion, Info: info, Who: who}
	if info.Cold {
		rec.Version, rec.Disks = coldVersion, disks
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := replaceDurably(d.file(info.ID), b); err != nil {
		return fmt.Errorf("write the record of a paused sandbox: %w", err)
	}
	return nil
}

// replaceDurably writes a file. On failure it leaves the old file, or no file if there was none.
func replaceDurably(path string, b []byte) error {
	tmp := path + tmpSuffix
	_, err := os.Lstat(path)
	before := err == nil
	if err = durable.WriteFile(tmp, b); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	err = durable.SyncDir(filepath.Dir(path))
	if err != nil && !before {
		os.Remove(path)
	}
	return err
}

// forget removes the record of a paused sandbox, and its boot files. It returns an error only if
// the record still exists.
func (d PausedDir) forget(id string, log *slog.Logger) error {
	err := os.Remove(d.file(id))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove the record of a paused sandbox: %w", err)
	}
	d.dropBoot(id)
	if err := durable.SyncDir(string(d)); err != nil {
		log.Error("remove the record of a paused sandbox: it may reappear after the host's next boot", "sandbox", id,
			"err", err)
	}
	return nil
}

// adoptPaused lists the paused sandboxes. If a record cannot be read, its sandbox is not listed,
// and its snapshot is kept.
func (t *Table) adoptPaused() error {
	if err := os.MkdirAll(string(t.cfg.Paused), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(t.cfg.Paused))
	if err != nil {
		return err
	}
	for _, en := range entries {
		if adoptArriving(t, en.Name()) {
			continue
		}
		id, ours := strings.CutSuffix(en.Name(), pausedSuffix)
		if !ours || !sandbox.ValidID(id) {
			t.cfg.Paused.tidy(en.Name())
			continue
		}
		rec, err := t.cfg.Paused.read(id)
		if err == nil && rec.Moved == nil && rec.Info.ClosePorts() {
			closedPorts(t, id, t.cfg.Paused.keep(rec.Info, rec.Who, rec.Disks))
		}
		t.mu.Lock()
		switch {
		case err != nil:
			t.unread[id] = true
		case rec.Moved != nil:
			t.moved[id] = *rec.Moved
		default:
			t.all[id] = t.newSandbox("", rec.Who, rec.Info)
			t.all[id].disks = vmproc.NewDisks(rec.Disks)
		}
		t.mu.Unlock()
		if err != nil {
			t.cfg.Log.Error("a paused sandbox is not listed: its record cannot be read", "sandbox", id, "err", err)
		}
	}
	return nil
}

// tidy removes files left by an interrupted write or pause.
func (d PausedDir) tidy(name string) {
	orphan := strings.HasSuffix(name, tmpSuffix)
	if id := bootFileOf(name); id != "" {
		_, err := os.Lstat(d.file(id))
		orphan = errors.Is(err, fs.ErrNotExist)
	}
	if orphan {
		os.Remove(filepath.Join(string(d), name))
	}
}

func (d PausedDir) read(id string) (rec pausedRecord, err error) {
	b, err := durable.ReadFile(d.file(id), maxPaused)
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, err
	}
	rec.share()
	return rec, rec.check(id)
}

func (rec pausedRecord) check(id string) error {
	i := rec.Info
	switch {
	case rec.Version == movedVersion && rec.Moved != nil && rec.Moved.ID == id:
		return nil
	case rec.Moved != nil:
		return errors.New("it is of a sandbox that was moved, and of one that was not")
	case rec.Version != pausedVersion && rec.Version != coldVersion:
		return fmt.Errorf("its version is %d, want %d or %d", rec.Version, pausedVersion, coldVersion)
	case i.ID != id || i.Status != sandbox.StatusPaused || i.PID != 0 || i.PausedIn == "" && !i.Cold:
		return errors.New("it belongs to another sandbox")
	case i.Cold != (rec.Version == coldVersion) || i.Cold != (len(rec.Disks) > 0):
		return errors.New("it lacks the disk to boot from")
	}
	for _, d := range rec.Disks {
		if len(d.Backing) == 0 || len(d.Frozen) > 0 || d.Overlay != "" || d.Next != "" {
			return errors.New("its disks are not made of layers alone")
		}
	}
	return nil
}

// share makes records share equal strings in memory: a daemon may have a thousand records from only
// a few snapshots.
func (r *pausedRecord) share() {
	for _, s := range []*string{&r.Info.SnapshotTag, &r.Info.SnapshotHash, &r.Info.Owner, &r.Who.Parent, &r.Who.ID,
		&r.Info.Hostname, &r.Info.ID} {
		*s = unique.Make(*s).Value()
	}
}

func (t *Table) isUnread(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unread[id]
}

// resumeTimeout bounds resuming a guest after an interrupted pause. Its VMM may be in the middle of a
// capture.
const resumeTimeout = 2 * time.Minute

// resumeInterrupted resumes the guest of an adopted sandbox after an interrupted pause.
func (t *Table) resumeInterrupted(ctx context.Context, s *Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	if _, err := s.vm.Proc.Resume(ctx); err != nil {
		return fmt.Errorf("resume after an interrupted pause: %w", err)
	}
	return s.Save()
}

// ErrInUse ends a pause of an idle sandbox used meanwhile.
var ErrInUse = sandbox.Errorf(sandbox.ErrConflict, "", "the sandbox is in use")

// BeginPause makes new calls to the guest fail until done is called. If idleFor is set, it returns
// ErrInUse if the sandbox was used within that time. The caller has its turn. If the VM ends
// meanwhile, done marks the sandbox as failed, unless Pause was called before: its snapshot may be
// complete by then.
func (s *Sandbox) BeginPause(vm *vmproc.VM, idleFor time.Duration) (done func(), err error) {
	t := s.table
	t.mu.Lock()
	switch {
	case s.state == ending:
		err = ErrKilled
	case s.vm != vm || s.state != running:
		err = failedMeanwhile(s.info)
	case idleFor > 0 && s.unusedLocked() < idleFor:
		err = ErrInUse
	default:
		s.pausing = true
	}
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	done = func() {
		t.mu.Lock()
		s.pausing = false
		lives := s.state == running
		t.mu.Unlock()
		if !lives {
			return
		}
		if !vm.Alive() {
			t.fail(s, vm)
			return
		}
		s.Touch() // its idle time restarts after the stop
		if err := s.Save(); err != nil {
			t.cfg.Log.Error("write journal", "sandbox", s.id, "err", err)
		}
	}
	if err := s.Save(); err != nil { // the next daemon resumes it
		done()
		return nil, err
	}
	return done, nil
}

func failedMeanwhile(i sandbox.Info) error {
	return sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxFailed, "the sandbox failed during the request: %s",
		i.Reason)
}

// PausedIn holds the saved state of a paused sandbox: a snapshot, or the layers of its disks if its
// memory is not kept. These layers are pinned for it (Table.Pin), and its boot files are kept
// (KeepBoot).
type PausedIn struct {
	// Tag names the snapshot, Hash is its content hash. They are unused if there are Disks.
	Tag, Hash string
	// Disks are the writable disks, in order. If there are any, the memory is not kept.
	Disks []vmproc.Disk
	// Suspend suspends its deadline until it is resumed.
	Suspend bool
}

// of returns the Info of a sandbox paused in it.
func (p PausedIn) of(i sandbox.Info) sandbox.Info {
	i.Status, i.PID, i.Cold = sandbox.StatusPaused, 0, len(p.Disks) > 0
	i.Life.Suspended = p.Suspend && !i.Life.Deadline.IsZero()
	if !i.Cold {
		i.PausedIn, i.PausedHash = p.Tag, p.Hash
	}
	return i
}

// Pause marks a sandbox with a stopped guest as paused. Writing its record is the commit point: a
// failure before it has no effect, and after it the VM has no owner and ends.
func (s *Sandbox) Pause(vm *vmproc.VM, in PausedIn) error {
	s.files.Lock()
	defer s.files.Unlock()
	t := s.table
	t.mu.Lock()
	info, is, same := s.info, s.state, s.vm == vm
	t.mu.Unlock()
	switch {
	case is == ending:
		return ErrKilled
	case is != running || !same:
		return failedMeanwhile(info)
	}
	info = in.of(info)
	if err := t.cfg.Paused.keep(info, s.who, in.Disks); err != nil {
		return err
	}
	failpoint.Here(failpoint.PauseRecorded)
	how := vmproc.WasPaused
	vm.Replaced.Store(&how)
	vm.Own(nil)
	vm.Agent.Close()
	vm.End()
	t.cfg.Procs.Remove(vm.Dir, vm.Disks.Paths())
	disks := vmproc.NewDisks(in.Disks)
	switch {
	case info.Cold:
		disks.SetPinned()
	case vm.Disks.Pinned(): // its snapshot holds its layers
		t.cfg.Unpin(s.id)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.info, s.vm, s.disks, s.dir = info, nil, disks, ""
	if s.rare != nil { // it was paused after all
		s.rare.pauseErr = ""
	}
	s.moveLocked(pause) // fails if it is being killed meanwhile; the kill waits for files
	return nil
}

// BeginResume marks a paused sandbox as getting a VM until done is called. The caller has its turn.
func (s *Sandbox) BeginResume() (done func()) {
	set := func(to bool) {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		s.resuming = to
	}
	set(true)
	return func() { set(false) }
}

// Resume makes a VM the paused sandbox's VM. Removing the record is the commit point: a failure
// before it affects only the VM, which the caller must discard.
func (s *Sandbox) Resume(ctx context.Context, vm *vmproc.VM, change func(*sandbox.Info)) error {
	s.files.Lock()
	defer s.files.Unlock()
	t := s.table
	t.mu.Lock()
	info, is := s.info, s.state
	t.mu.Unlock()
	switch {
	case is == ending:
		return ErrKilled
	case is != paused:
		return sandbox.Errorf(sandbox.ErrConflict, "", "the sandbox is %s", info.Status)
	case ctx.Err() != nil: // last chance for the caller to cancel
		return context.Cause(ctx)
	}
	info.Status, info.PID, info.Shape = sandbox.StatusRunning, vm.Proc.PID(), vm.Shape
	change(&info)
	rec := Record{Version: vmproc.JournalVersion, Dir: filepath.Base(vm.Dir), Info: info, Who: s.who,
		Disks: vm.Disks.List()}
	if err := rec.write(vm.Dir); err != nil {
		return err
	}
	failpoint.Here(failpoint.ResumeRecorded)
	// From here on an end of the VM is an end of the sandbox's VM: fail waits for files, then finds
	// it in the sandbox.
	if !vm.Own(func() { t.fail(s, vm) }) {
		return vm.EndError()
	}
	if err := t.cfg.Paused.forget(s.id, t.cfg.Log); err != nil {
		vm.Own(nil)
		return err
	}
	failpoint.Here(failpoint.ResumeHeld)
	s.Touch()
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.disks.Pinned() { // the pin belongs to the sandbox, not to its VM
		vm.Disks.SetPinned()
	}
	s.info, s.vm, s.disks, s.dir = info, vm, vm.Disks, vm.Dir
	s.moveLocked(resume)
	return nil
}

// Unpaused records why a sandbox was not paused when it was due. The reason is listed with the
// sandbox.
func (s *Sandbox) Unpaused(why error) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.makeRareLocked().pauseErr = fmt.Sprintf("it could not be paused, and runs on: %v", why)
}

// Unused returns the running sandboxes with automatic resume that were not used for at least
// forLong, longest unused first.
func (t *Table) Unused(forLong time.Duration) (out []sandbox.Info) {
	t.mu.Lock()
	for _, s := range t.all {
		if s.state != running || s.vm == nil || s.pausing || !s.info.Life.AutoResume {
			continue
		}
		if unused := s.unusedLocked(); unused >= forLong {
			i := s.info
			i.Unused = unused
			out = append(out, i)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(out, func(a, b sandbox.Info) int {
		return cmp.Or(cmp.Compare(b.Unused, a.Unused), strings.Compare(a.ID, b.ID))
	})
	return out
}

// WithDeadline returns the sandboxes that may become due: running ones with a deadline or idle limit, and
// paused ones to be killed.
func (t *Table) WithDeadline() (out []sandbox.Info) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		if l := s.info.Life; l.Idle == 0 && l.Deadline.IsZero() {
			continue
		}
		if s.state == running || s.state == paused {
			out = append(out, s.seenLocked())
		}
	}
	return out
}
