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

// A paused sandbox is a snapshot and a record in the store (docs/inside/formats/paused.md). The record is
// the moment: as long as there is one the sandbox is paused, whatever VM the run directory has of it.

// Versions of the records. One that is of a sandbox without its memory has a version of its own: a daemon that
// does not know of it would resume the sandbox with a memory of long ago.
const (
	pausedVersion = 1
	coldVersion   = 2
)

// maxPaused bounds what is read back of one.
const maxPaused = 1 << 20

type pausedRecord struct {
	Version int              `json:"version"`
	Info    sandbox.Info     `json:"info"`
	Who     sandbox.Identity `json:"who"`
	// Disks are those that it writes to, of one that is paused without its memory: layers, and no file over them yet.
	Disks []vmproc.Disk `json:"disks,omitempty"`
}

// WasPaused is how a VM comes to its end by a pause.
const WasPaused = "was paused"

// PauseTag is how the tags of the snapshots begin that a sandbox is paused in.
func PauseTag(id string) string { return "pause-" + id + "-" }

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

// replaceDurably leaves the file as it was, or absent, if it fails.
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

// forget removes the record of a paused sandbox, and what it would boot from. It is an error only if the record is
// still there.
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
		log.Error("remove the record of a paused sandbox: it may come back with the host's next boot", "sandbox", id,
			"err", err)
	}
	return nil
}

// adoptPaused lists the sandboxes that are paused. One whose record cannot be read is not listed, and
// its snapshot is kept.
func (t *Table) adoptPaused() error {
	if err := os.MkdirAll(string(t.cfg.Paused), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(t.cfg.Paused))
	if err != nil {
		return err
	}
	for _, en := range entries {
		id, ours := strings.CutSuffix(en.Name(), pausedSuffix)
		if !ours || !sandbox.ValidID(id) {
			t.cfg.Paused.tidy(en.Name())
			continue
		}
		rec, err := t.cfg.Paused.read(id)
		if err == nil && rec.Info.ClosePorts() {
			closedPorts(t, id, t.cfg.Paused.keep(rec.Info, rec.Who, rec.Disks))
		}
		t.mu.Lock()
		if err != nil {
			t.unread[id] = true
		} else {
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

// tidy removes what a write or a pause that was cut short has left.
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
	case rec.Version != pausedVersion && rec.Version != coldVersion:
		return fmt.Errorf("its version is %d, want %d or %d", rec.Version, pausedVersion, coldVersion)
	case i.ID != id || i.Status != sandbox.StatusPaused || i.PID != 0 || i.PausedIn == "" && !i.Cold:
		return errors.New("it is not of a paused sandbox of that name")
	case i.Cold != (rec.Version == coldVersion) || i.Cold != (len(rec.Disks) > 0):
		return errors.New("it does not say of which disk the sandbox is to boot")
	}
	for _, d := range rec.Disks {
		if len(d.Backing) == 0 || len(d.Frozen) > 0 || d.Overlay != "" || d.Next != "" {
			return errors.New("its disks are not made of layers alone")
		}
	}
	return nil
}

// share has records hold the same strings once: a daemon may have a thousand of them, of few snapshots.
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

// goOnTimeout bounds how long a guest that stood still for a pause that was cut short may take to go on:
// its VMM may be in the middle of a capture.
const goOnTimeout = 2 * time.Minute

// goOn lets the guest of an adopted sandbox go on that an earlier daemon was about to pause.
func (t *Table) goOn(ctx context.Context, s *Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, goOnTimeout)
	defer cancel()
	if _, err := s.vm.Proc.Resume(ctx); err != nil {
		return fmt.Errorf("go on after a pause that was cut short: %w", err)
	}
	return s.Save()
}

// ErrInUse ends a pause of an idle sandbox that somebody uses after all.
var ErrInUse = sandbox.Errorf(sandbox.ErrConflict, "", "the sandbox is in use")

// BeginPause has calls refused that would reach the guest from now on, until done. With idleFor it is ErrInUse if
// somebody has used the sandbox within that time. The caller has its turn. A VM that ends meanwhile fails the sandbox
// at done, and not if Pause was before: what it is paused in may be whole by then.
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
		s.Touch() // it was stopped, and begins to be idle anew
		if err := s.Save(); err != nil {
			t.cfg.Log.Error("write journal", "sandbox", s.id, "err", err)
		}
	}
	if err := s.Save(); err != nil { // the next daemon lets it go on
		done()
		return nil, err
	}
	return done, nil
}

func failedMeanwhile(i sandbox.Info) error {
	return sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxFailed, "the sandbox has failed meanwhile: %s",
		i.Reason)
}

// PausedIn is what a sandbox is paused in: a snapshot, or the layers of its disks without its memory. Those
// are pinned for it (Table.Pin), and what it boots from is kept (KeepBoot).
type PausedIn struct {
	Tag, Hash string
	Disks     []vmproc.Disk
	// Suspend suspends its deadline until it is resumed.
	Suspend bool
}

// of is what is said of a sandbox that is paused in it.
func (p PausedIn) of(i sandbox.Info) sandbox.Info {
	i.Status, i.PID, i.Cold = sandbox.StatusPaused, 0, len(p.Disks) > 0
	i.Life.Suspended = p.Suspend && !i.Life.Deadline.IsZero()
	if !i.Cold {
		i.PausedIn, i.PausedHash = p.Tag, p.Hash
	}
	return i
}

// Pause makes a sandbox, whose guest stands still, one that is paused. The record of that is the moment: until
// then a failure changes nothing, from then on the VM is nobody's, and goes.
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
	how := WasPaused
	vm.Replaced.Store(&how)
	vm.Own(nil)
	vm.Agent.Close()
	vm.End()
	t.cfg.Procs.Remove(vm.Dir, vm.Disks.Paths())
	disks := vmproc.NewDisks(in.Disks)
	switch {
	case info.Cold:
		disks.SetPinned()
	case vm.Disks.Pinned(): // its snapshot holds what it lies over
		t.cfg.Unpin(s.id)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.info, s.vm, s.disks, s.dir = info, nil, disks, ""
	if s.few != nil { // it was paused after all
		s.few.unpaused = ""
	}
	s.moveLocked(pause) // refused of one that is being killed since: that waits for files
	return nil
}

// BeginResume notes that a paused sandbox is getting a VM, until done. The caller has its turn.
func (s *Sandbox) BeginResume() (done func()) {
	set := func(to bool) {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		s.resuming = to
	}
	set(true)
	return func() { set(false) }
}

// Resume makes a VM the paused sandbox's. The end of the record is the moment: until then a
// failure costs the VM only, which is the caller's to discard.
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
	case ctx.Err() != nil: // the last moment at which the caller can change its mind
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
	// if it ends from here on it ends as the sandbox's VM: fail waits for files, and then finds it in the sandbox.
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
	if s.disks.Pinned() { // the pin goes with the sandbox, not with its VM
		vm.Disks.SetPinned()
	}
	s.info, s.vm, s.disks, s.dir = info, vm, vm.Disks, vm.Dir
	s.moveLocked(resume)
	return nil
}

// Unpaused notes why a sandbox was not paused although it was time. It is told with the sandbox.
func (s *Sandbox) Unpaused(why error) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.makeFewLocked().unpaused = fmt.Sprintf("it could not be paused, and runs on: %v", why)
}

// Unused are the sandboxes that run, go on by themselves once they are paused, and were not used for so long: the
// one that was not used for the longest first.
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

// Mortal are the sandboxes that may be due: they run and may not for ever, or are paused and to be killed.
func (t *Table) Mortal() (out []sandbox.Info) {
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
