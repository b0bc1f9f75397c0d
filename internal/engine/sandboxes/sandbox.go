package sandboxes

import (
	"context"
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
	// diedUnseen is set of a sandbox whose VM ended between two daemons.
	diedUnseen bool
	// used is when somebody last wanted something of its guest, by Config.Elapsed.
	used atomic.Int64

	// files serialises the writers of dir: the failure's record, the removal,
	// a rollback's exchange, a pause and a resume. Lock order: files, then Table.mu.
	files sync.Mutex

	// Guarded by Table.mu; dir is written with files held as well:
	dir   string // its VM's run directory; empty when paused, or ended by a boot
	state state
	info  sandbox.Info
	vm    *vmproc.VM    // nil when failed or paused
	disks *vmproc.Disks // as those of the VM
	// pausing is set while its guest stands still to be paused, resuming while it gets a VM.
	pausing, resuming bool
	// few is what most sandboxes have nothing of: the paused ones may be many. nil: nothing.
	few *few
	// turn holds a value while a branch, a rollback, a pause or a resume is under way; nil: there was none yet.
	turn chan struct{}
	// gone is closed when it is killed and removed; nil: it is not being killed.
	gone chan struct{}
}

// few is what few sandboxes have. It is guarded by Table.mu.
type few struct {
	// life ends when the sandbox begins to be killed, and what is being made for it need not go on; nil:
	// nobody has asked for it.
	life context.Context
	die  context.CancelCauseFunc
	// endedByBoot is when a daemon found that it had ended with the host's last boot; zero: it did not.
	endedByBoot time.Time
	// unpaused is why it was last not paused although it was time; empty: it was not so.
	unpaused string
}

// fewLocked is what few have, to read.
func (s *Sandbox) fewLocked() few {
	if s.few == nil {
		return few{}
	}
	return *s.few
}

// makeFewLocked is what few have, to write.
func (s *Sandbox) makeFewLocked() *few {
	if s.few == nil {
		s.few = new(few)
	}
	return s.few
}

// newSandbox is one that is not listed yet.
func (t *Table) newSandbox(dir string, who sandbox.Identity, info sandbox.Info) *Sandbox {
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

// ID is its name.
func (s *Sandbox) ID() string { return s.id }

// Who is what its guest was told of itself.
func (s *Sandbox) Who() sandbox.Identity { return s.who }

// Life ends, with ErrKilled, when the sandbox begins to be killed.
func (s *Sandbox) Life() context.Context {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	f := s.makeFewLocked()
	if f.life == nil {
		f.life, f.die = context.WithCancelCause(context.Background())
		if s.state == ending {
			f.die(ErrKilled)
		}
	}
	return f.life
}

// DiedUnseen reports whether its VM ended between two daemons.
func (s *Sandbox) DiedUnseen() bool { return s.diedUnseen }

// Dir is its VM's run directory, which a rollback does not change; empty: it is paused.
func (s *Sandbox) Dir() string {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.dir
}

// Info is what the journal says of it: without what its disks suffer at this moment.
func (s *Sandbox) Info() sandbox.Info {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.info
}

// Disks are those that it writes to.
func (s *Sandbox) Disks() *vmproc.Disks {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.disks
}

// Turn waits until no branch, rollback, pause or resume of the sandbox is under way.
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

// AwaitKilled waits until nothing of a sandbox that is being killed is left, and reports
// whether it is one.
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

// seenLocked is what is listed of it. Table.mu is held.
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
		i.Warning = s.fewLocked().unpaused
	}
	return i
}

// Touch notes that somebody uses it.
func (s *Sandbox) Touch() { s.used.Store(int64(s.table.cfg.Elapsed())) }

// unusedLocked is for how long nobody has used it. A call or a stream that is under way counts as
// use. Table.mu is held.
func (s *Sandbox) unusedLocked() time.Duration {
	if s.vm.Calls() > 0 {
		s.Touch()
	}
	return s.table.cfg.Elapsed() - time.Duration(s.used.Load())
}

// LockFiles keeps everybody from its directory until release: its failure is not recorded
// and it is not removed meanwhile.
func (s *Sandbox) LockFiles() (release func()) {
	s.files.Lock()
	return s.files.Unlock
}
