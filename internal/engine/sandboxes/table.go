package sandboxes

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Config configures a Table.
type Config struct {
	Procs  *vmproc.Supervisor // adopts VMs, and removes their directories
	Events Events             // hooks of other packages
	// Tell receives events about sandboxes, for outside observers.
	Tell sandbox.Events
	// Agent judges the agent of a guest. It is called with Table.mu. If it is nil, the recorded description is shown.
	Agent func(*sandbox.Agent) *sandbox.Agent
	// Pin keeps layers for a sandbox until Unpin.
	Pin   func(id string, layers []layer.ID) error
	Unpin func(id string) // removes the sandbox's pin
	// Paused is the directory of the records of paused sandboxes, in the store.
	Paused PausedDir
	// Ran is the file in the store that lists the running sandboxes. Boot is the host's boot id;
	// empty if unknown.
	Ran, Boot string
	// FailedKeep is how long a failed sandbox stays listed.
	FailedKeep time.Duration
	// Waits limits the requests waiting for a sandbox. Zero fields have defaults.
	Waits  Waits
	AtOnce int              // number of VMs adopted concurrently
	Now    func() time.Time // wall clock
	// Elapsed is a monotonic clock.
	Elapsed func() time.Duration
	Log     *slog.Logger // receives failed and adopted sandboxes, and errors of their files
}

// Events holds the functions of other packages to call when a sandbox is added or ends. They are
// called without Table.mu.
type Events struct {
	Adding  func(sandbox.Info) // before it is listed, so before its end
	Dropped func(sandbox.Info) // it was not listed after all
	// Ended is called when its VM has ended. If killed is set, the sandbox has been removed
	// completely.
	Ended func(i sandbox.Info, killed bool)
	// Ending is called before a sandbox is killed, with its VM. It may be nil.
	Ending func(s *Sandbox, vm *vmproc.VM)
}

// Table is the list of sandboxes. Its methods are safe for concurrent use.
type Table struct {
	cfg Config
	Ran *Ran // list of running sandboxes, in the store

	agent atomic.Pointer[sandbox.Agent] // of the last sandbox

	mu  sync.Mutex // guards the fields below, and parts of each Sandbox; never held across I/O
	all map[string]*Sandbox
	// unread holds the ids of paused sandboxes with unreadable records.
	unread map[string]bool
	// moved holds the sandboxes that other daemons have taken, arriving those that are being taken from others.
	moved    map[string]Moved
	arriving map[string]arriving
	// waiting counts the waiting requests, limited by waits, which does not change.
	waiting waiting
	waits   Waits
}

// New returns an empty table.
func New(c Config) *Table {
	t := &Table{cfg: c, all: map[string]*Sandbox{}, unread: map[string]bool{}, moved: map[string]Moved{},
		arriving: map[string]arriving{},
		waiting:  newWaiting(), waits: c.Waits.complete()}
	t.Ran = &Ran{t: t, seed: maphash.MakeSeed()}
	return t
}

// ErrKilled ends operations on a killed sandbox.
var ErrKilled = sandbox.Errorf(sandbox.ErrConflict, "", "the sandbox was killed during the request")

// Add lists a sandbox with a running VM. It writes the journal first.
func (t *Table) Add(who sandbox.Identity, info sandbox.Info, vm *vmproc.VM) error {
	s := t.newSandbox(vm.Dir, who, info)
	s.vm, s.disks = vm, vm.Disks
	if err := s.recordLocked().write(s.dir); err != nil {
		return err
	}
	t.cfg.Events.Adding(info)
	failpoint.Here(failpoint.ForkRecorded)
	if !t.list(s) {
		t.cfg.Events.Dropped(info)
		return fmt.Errorf("id %s is taken: %w", info.ID, sandbox.ErrConflict)
	}
	t.cfg.Tell(sandbox.EventReady, info.ID, info.About()) // before its end can be reported
	if !vm.Own(func() { t.fail(s, vm) }) {
		t.unlist(s)
		t.cfg.Events.Dropped(info)
		return vm.EndError()
	}
	return nil
}

func (t *Table) list(s *Sandbox) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[s.id] != nil {
		return false
	}
	t.all[s.id] = s
	return true
}

func (t *Table) unlist(s *Sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, s.id)
}

// fail records that a sandbox's VM ended by itself, unless the sandbox already has another VM. If
// the sandbox is being paused, the consequence is not known yet: the end of the pause calls fail
// again (BeginPause).
func (t *Table) fail(s *Sandbox, vm *vmproc.VM) {
	s.files.Lock()
	defer s.files.Unlock()
	t.mu.Lock()
	if s.state != running || s.vm != vm || s.pausing {
		t.mu.Unlock()
		return
	}
	rec := s.recordLocked()
	t.mu.Unlock()
	reason := vm.EndReason()
	if o := vm.Outage(); o != "" { // its reads have failed
		reason = o + "; " + reason
	}
	rec.Info.Fail(reason)
	if err := rec.write(s.dir); err != nil {
		t.cfg.Log.Error("write journal", "sandbox", s.id, "err", err)
	}
	vm.Proc.Release()
	vm.Agent.Close()
	t.mu.Lock()
	s.info, s.vm = rec.Info, nil
	s.moveLocked(vmEnded) // fails if it is being killed meanwhile; the kill waits for files
	t.mu.Unlock()
	t.cfg.Tell(sandbox.EventFailed, s.id, rec.Info.About())
	t.cfg.Events.Ended(rec.Info, false)
	t.LogFailure(rec.Info, rec.Info.Reason, s.dir)
}

// End kills a sandbox and waits until it has been removed completely. A second call waits for the
// first.
func (t *Table) End(s *Sandbox) {
	t.mu.Lock()
	first, cancel := s.moveLocked(kill), s.rareLocked().cancel
	if first {
		s.gone = make(chan struct{})
	}
	gone := s.gone
	t.mu.Unlock()
	if !first {
		<-gone
		return
	}
	if cancel != nil {
		cancel(ErrKilled)
	}
	s.files.Lock()
	defer s.files.Unlock()
	// No more writers: fail and a rollback give up if the sandbox is being killed.
	if vm := s.vm; vm != nil {
		if t.cfg.Events.Ending != nil {
			t.cfg.Events.Ending(s, vm)
		}
		vm.Agent.Close()
		t.endVM(s.info, vm)
	} else if s.dir != "" {
		t.cfg.Procs.Remove(s.dir, s.disks.Paths())
	}
	if s.info.Status == sandbox.StatusPaused {
		if err := t.cfg.Paused.forget(s.id, t.cfg.Log); err != nil {
			t.cfg.Log.Error("kill a paused sandbox: it comes back with the next daemon", "sandbox", s.id, "err", err)
		}
	}
	if s.disks.Pinned() {
		t.cfg.Unpin(s.id)
	}
	t.unlist(s)
	t.cfg.Tell(sandbox.EventEnded, s.id, s.info.About())
	t.cfg.Events.Ended(s.info, true)
	close(gone)
}

// endVM discards a sandbox's VM. It logs a VM that had ended by itself: fail, which notices at
// about the same time, ignores a sandbox being killed.
func (t *Table) endVM(info sandbox.Info, vm *vmproc.VM) {
	died := !vm.Alive()
	vm.Own(nil)
	vm.End()
	switch vm.Proc.Exit().Kind { // the VMM's own report, if it sent one
	case vmm.ExitPowerOff, vmm.ExitReset, vmm.ExitFault:
		died = true
	}
	if died {
		t.LogFailure(info, vm.EndReason(), vm.Dir)
	}
	t.cfg.Procs.Remove(vm.Dir, vm.Disks.Paths())
}

// LogFailure logs the data needed to understand a VM's end after its sandbox and console have been
// deleted. dir is the VM's directory, which still exists.
func (t *Table) LogFailure(info sandbox.Info, reason, dir string) {
	tag, _ := info.Base()
	t.cfg.Log.Warn("sandbox failed", "sandbox", info.ID, "snapshot", tag,
		"age", t.cfg.Now().Sub(info.CreatedAt).Round(time.Millisecond), "reason", reason,
		"console", vmproc.LastWords(filepath.Join(dir, client.ConsoleLog)))
}

// Kill ends a sandbox, running, paused or failed, and waits until it has been removed completely.
// Concurrent callers both succeed; later ones get ErrNotFound.
func (t *Table) Kill(id string) error {
	s := t.Lookup(id)
	if s == nil {
		return killArrival(t, id)
	}
	t.End(s)
	return nil
}

func notFound(id string) error {
	return sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s not found", sandbox.Clip(id))
}

// Lookup finds a sandbox even while it is being killed. It returns nil if there is no such sandbox.
// Lookup and Find also accept an id without dashes.
func (t *Table) Lookup(id string) *Sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[sandbox.CanonicalID(id)]
}

// Find returns a listed sandbox.
func (t *Table) Find(id string) (*Sandbox, sandbox.Info, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.all[sandbox.CanonicalID(id)]
	if s == nil || s.state == ending {
		return nil, sandbox.Info{}, missingLocked(t, id)
	}
	return s, s.seenLocked(), nil
}

// Running returns a sandbox and its VM, or an error with the reason why it has no usable VM.
func (t *Table) Running(id string) (*Sandbox, *vmproc.VM, error) {
	s, info, err := t.Find(id)
	if err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	vm, away := s.vm, s.pausing && s.state == running || s.state == paused
	t.mu.Unlock()
	if away {
		return nil, nil, sandbox.Paused(info)
	}
	if vm == nil {
		return nil, nil, sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxFailed, "sandbox %s has failed: %s",
			id, info.Reason)
	}
	return s, vm, nil
}

// ByProcess returns the sandbox with that process as its VM, or nil.
func (t *Table) ByProcess(proc *client.Process) *Sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		if s.isLocked(proc) {
			return s
		}
	}
	return nil
}

func (s *Sandbox) isLocked(proc *client.Process) bool {
	return proc != nil && s.vm != nil && s.vm.Proc == proc && s.state != ending
}

// Is reports whether the sandbox's VM is that process.
func (s *Sandbox) Is(proc *client.Process) bool {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.isLocked(proc)
}

// List returns all sandboxes, oldest first, including failed ones.
func (t *Table) List() []sandbox.Info {
	t.mu.Lock()
	out := make([]sandbox.Info, 0, len(t.all))
	for _, s := range t.all {
		if s.state != ending {
			out = append(out, s.seenLocked())
		}
	}
	t.mu.Unlock()
	slices.SortFunc(out, func(a, b sandbox.Info) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// All returns all sandboxes, unordered, including ones being killed.
func (t *Table) All() []*Sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*Sandbox, 0, len(t.all))
	for _, s := range t.all {
		all = append(all, s)
	}
	return all
}

// Release releases running VMs, or ends them if kill is set.
func (t *Table) Release(kill bool) {
	all := t.All()
	sched.Each(len(all), 2*t.cfg.AtOnce, func(i int) {
		if kill {
			t.End(all[i])
			return
		}
		t.mu.Lock()
		vm := all[i].vm
		t.mu.Unlock()
		if vm != nil {
			vm.Agent.Close()
			vm.Proc.Release()
		}
	})
	t.Ran.write()
}

// expireEvery limits how often failed sandboxes are checked.
const expireEvery = time.Minute

// Expire removes old failed sandboxes until ctx ends.
func (t *Table) Expire(ctx context.Context) {
	tick := time.NewTicker(min(expireEvery, t.cfg.FailedKeep))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, s := range t.expired() {
				t.End(s)
			}
		case <-ctx.Done():
			return
		}
	}
}
