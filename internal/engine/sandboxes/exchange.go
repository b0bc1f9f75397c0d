package sandboxes

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// Exchange is a rollback's last step: a sandbox gets another VM.
type Exchange struct {
	Old, New *vmproc.VM
	// Change is what becomes of the Info beside that it is another VM's.
	Change func(*sandbox.Info)
	// Check is the last look at the new VM, when the journal is written and nothing has
	// happened yet.
	Check func() error
	How   string // says of the old VM's end how it came
}

// Exchange makes the new VM the sandbox's at one moment, which is the exchange of the two
// VMs' run directories. Until then a failure costs nothing but the new VM, which is
// the caller's to discard.
func (s *Sandbox) Exchange(ctx context.Context, x Exchange) error {
	s.files.Lock()
	defer s.files.Unlock()
	rec, err := s.exchanged(x)
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // the last moment at which the caller can change its mind
		return context.Cause(ctx)
	}
	next := x.New.MovedTo(s.dir)
	if err := rec.write(x.New.Dir); err != nil {
		return err
	}
	failpoint.Here(failpoint.RollbackRecorded)
	if err := x.Check(); err != nil {
		return err
	}
	// if it ends from here on it ends as the sandbox's VM: fail waits for files,
	// and then finds it in the sandbox.
	if !next.Own(func() { s.table.fail(s, next) }) {
		return x.New.EndError()
	}
	if err := exchangeDirs(x.New.Dir, s.dir); err != nil {
		return err
	}
	failpoint.Here(failpoint.RollbackExchanged)
	next.Proc.Moved(s.dir)
	x.New.Agent.Close() // its connections began at the other address
	next.Agent = next.NewAgent()
	x.Old.Replaced.Store(&x.How)
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.disks.Pinned() { // the pin goes with the sandbox, not with its VM
		next.Disks.SetPinned()
	}
	s.vm, s.info, s.disks = next, rec.Info, next.Disks
	return nil
}

// exchanged is what the journal will say of the sandbox, unless it has ended.
func (s *Sandbox) exchanged(x Exchange) (Record, error) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	switch {
	case s.state == ending:
		return Record{}, ErrKilled
	case s.vm != x.Old || !s.moveLocked(exchange):
		return Record{}, sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxFailed,
			"the sandbox has failed meanwhile: %s", s.info.Reason)
	}
	rec := s.recordLocked()
	rec.Disks = x.New.Disks.List()
	rec.Info.PID = x.New.Proc.PID()
	rec.Info.Shape = x.New.Shape
	x.Change(&rec.Info)
	return rec, nil
}

// exchangeDirs exchanges two directories of the run directory at one moment.
func exchangeDirs(a, b string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	return nil
}
