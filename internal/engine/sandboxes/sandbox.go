package sandboxes

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

// Sandbox is one listed sandbox.
type Sandbox struct {
	table *Table
	id    string
	who   sandbox.Identity
	// diedUnseen marks a sandbox whose VM ended between two daemons.
	diedUnseen bool
	// used is the time of the last use of its guest, by Config.Elapsed.
	used atomic.Int64

	// files serialises the writers of dir: recording a failure, removal, a rollback's exchange, a
	// pause and a resume. Lock order: files, then Table.mu.
	files sync.Mutex

	// Guarded by Table.mu; dir is written with files held as well:
	dir   string // its VM's run directory; empty when paused, or ended by a boot
	state state
	info  sandbox.Info
	vm    *vmproc.VM    // nil when failed or paused
	disks *vmproc.Disks // the disks of the VM
	// pausing is set while its guest is stopped to be paused, resuming while it gets a VM.
	pausing, resuming bool
	// rare holds rarely set fields, so that many paused sandboxes stay small. It may be nil.
	rare *rare
	// turn holds a value during a branch, a rollback, a pause or a resume. It is nil before the
	// first one.
	turn chan struct{}
	// gone is closed when the sandbox is killed and removed. It is nil unless the sandbox is being
	// killed.
	gone chan struct{}
}

// rare holds rarely set fields of a sandbox. It is guarded by Table.mu.
type rare struct {
	// life ends when the sandbox begins to be killed, to cancel work done for it. It is nil if it
	// was never requested.
	life   context.Context
	cancel context.CancelCauseFunc
	// endedByBoot is when a daemon found that the host's last boot had ended the sandbox; otherwise
	// it is zero.
	endedByBoot time.Time
	// pauseErr is why the last automatic pause failed. It is empty if it did not fail.
	pauseErr string
	// services are those its guest last reported.
	services []sandbox.Service
}

// rareLocked returns the rarely set fields for reading.
func (s *Sandbox) rareLocked() rare {
	if s.rare == nil {
		return rare{}
	}
	return *s.rare
}

// makeRareLocked returns the rarely set fields for writing.
func (s *Sandbox) makeRareLocked() *rare {
	if s.rare == nil {
		s.rare = new(rare)
	}
	return s.rare
}

// newSandbox returns a sandbox that is not listed yet.
func (t *Table) newSandbox(dir string, who sandbox.Identity, info sandbox.Info) *Sandbox {
	info.Agent = sharedAgent(t, info.Agent)
	s := &Sandbox{
		table: t, id: info.ID, dir: dir, who: who, info: info, disks: &vmproc.Disks{},
	}
	switch info.Status {
	case sandbox.StatusFailed:
		s.state = failed
	case sandbox.StatusPaused:
		s.state = paused
	}
	s.Touch()
	return s
}

// sharedAgent returns the description of the last sandbox's agent if it is equal, because most sandboxes have the same.
func sharedAgent(t *Table, a *sandbox.Agent) *sandbox.Agent {
	if a == nil {
		return nil
	}
	last := t.agent.Load()
	if last != nil && last.Version == a.Version && slices.Equal(last.Capabilities, a.Capabilities) {
		return last
	}
	t.agent.Store(a)
	return a
}

// ID returns its id.
func (s *Sandbox) ID() string { return s.id }

// Who returns the identity sent to its guest.
func (s *Sandbox) Who() sandbox.Identity { return s.who }

// Life returns a context that ends, with ErrKilled, when the sandbox begins to be killed.
func (s *Sandbox) Life() context.Context {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	f := s.makeRareLocked()
	if f.life == nil {
		f.life, f.cancel = context.WithCancelCause(context.Background())
		if s.state == ending {
			f.cancel(ErrKilled)
		}
	}
	return f.life
}

// DiedUnseen reports whether its VM ended between two daemons.
func (s *Sandbox) DiedUnseen() bool { return s.diedUnseen }

// Dir returns its VM's run directory. A rollback does not change it. It is empty if the sandbox is
// paused.
func (s *Sandbox) Dir() string {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.dir
}

// Info returns the journal's Info, without the current health of its disks.
func (s *Sandbox) Info() sandbox.Info {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.info
}

// Disks returns its writable disks.
func (s *Sandbox) Disks() *vmproc.Disks {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.disks
}

// Turn waits until no branch, rollback, pause or resume of the sandbox is running.
func (s *Sandbox) Turn(ctx context.Context) (leave func(), err error) {
	turn := s.turns()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, sandbox.Ended(ctx, context.Cause(ctx))
	}
}

func (s *Sandbox) turns() chan struct{} {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.turn == nil {
		s.turn = make(chan struct{}, 1)
	}
	return s.turn
}

// AwaitKilled waits until a sandbox being killed has been removed, and reports whether it was being
// killed.
func (s *Sandbox) AwaitKilled() bool {
	s.table.mu.Lock()
	gone := s.gone
	s.table.mu.Unlock()
	if gone == nil {
		return false
	}
	<-gone
	return true
}

func (s *Sandbox) isEnding() bool {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.state == ending
}

// seenLocked returns its Info as listed. The caller holds Table.mu.
func (s *Sandbox) seenLocked() sandbox.Info {
	i := s.info
	if s.vm != nil {
		i = s.vm.Describe(i)
		if i.Life.Idle > 0 {
			i.Unused = s.unusedLocked()
		}
	}
	switch {
	case s.pausing && s.state == running:
		i.Status = sandbox.StatusPausing
	case s.resuming && s.state == paused:
		i.Status = sandbox.StatusResuming
	}
	if i.Warning == "" {
		i.Warning = s.rareLocked().pauseErr
	}
	i.Services = s.rareLocked().services
	if s.table.cfg.Agent != nil {
		i.Agent = s.table.cfg.Agent(i.Agent)
	}
	return i
}

// Touch records a use of the sandbox.
func (s *Sandbox) Touch() { s.used.Store(int64(s.table.cfg.Elapsed())) }

// unusedLocked returns the time since its last use. A running call or stream counts as use. The
// caller holds Table.mu.
func (s *Sandbox) unusedLocked() time.Duration {
	if s.vm.Calls() > 0 {
		s.Touch()
	}
	return s.table.cfg.Elapsed() - time.Duration(s.used.Load())
}

// LockFiles locks its directory until release. Until then its failure is not recorded and it is not
// removed.
func (s *Sandbox) LockFiles() (release func()) {
	s.files.Lock()
	return s.files.Unlock
}
