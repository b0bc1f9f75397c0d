package sandboxes

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// Exchange describes the last step of a rollback, in which a sandbox gets another VM.
type Exchange struct {
	// Old is the sandbox's VM until the exchange. New takes over its directory.
	Old, New *vmproc.VM
	// Change modifies the Info, in addition to the fields of the new VM.
	Change func(*sandbox.Info)
	// Check is the final check of the new VM. It runs when the journal is written but before the
	// exchange.
	Check func() error
	How   string // describes the end of the old VM
}

// Exchange atomically makes the new VM the sandbox's VM by exchanging the two VMs' run directories.
// A failure before that affects only the new VM, which the caller must discard.
func (s *Sandbox) Exchange(ctx context.Context, x Exchange) error {
	s.files.Lock()
	defer s.files.Unlock()
	rec, err := s.exchanged(x)
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // last chance for the caller to cancel
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
	// From here on an end of the VM is an end of the sandbox's VM: fail waits for files, then finds
	// it in the sandbox.
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
	if s.disks.Pinned() { // the pin belongs to the sandbox, not to its VM
		next.Disks.SetPinned()
	}
	s.vm, s.info, s.disks = next, rec.Info, next.Disks
	return nil
}

// exchanged returns the future journal record of the sandbox, unless the sandbox has ended.
func (s *Sandbox) exchanged(x Exchange) (Record, error) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	switch {
	case s.state == ending:
		return Record{}, ErrKilled
	case s.vm != x.Old || !s.moveLocked(exchange):
		return Record{}, sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxFailed,
			"the sandbox failed during the request: %s", s.info.Reason)
	}
	rec := s.recordLocked()
	rec.Disks = x.New.Disks.List()
	rec.Info.PID = x.New.Proc.PID()
	rec.Info.Shape = x.New.Shape
	x.Change(&rec.Info)
	return rec, nil
}

// exchangeDirs atomically exchanges two directories of the run directory.
func exchangeDirs(a, b string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	return nil
}
