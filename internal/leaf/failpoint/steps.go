package failpoint

// Step names a moment after which an operation can have been cut short.
type Step string

// The steps, by operation. Each stands in exactly one call of Here (test/arch),
// and the crash tests go through all (test/crash). The stores have steps of
// their own as well, which the crash tests find by watching.
const (
	BranchReserved Step = "branch.reserved" // the tag is taken
	BranchFiles    Step = "branch.files"    // there are files to capture to
	BranchCaptured Step = "branch.captured" // the sandbox runs again, its disks in new files
	BranchRunning  Step = "branch.running"  // those have the names that the journal knows
	BranchWritten  Step = "branch.written"  // the capture is in its files
	BranchDone     Step = "branch.done"     // the snapshot is there

	CaptureBegun   Step = "capture.begun"   // in the VMM, as those below: the guest runs, nothing is copied
	CaptureRound   Step = "capture.round"   // one round of copying has been
	CapturePaused  Step = "capture.paused"  // the guest stands
	CaptureHeld    Step = "capture.held"    // what is left is in memory, the disks go on in new files
	CaptureResumed Step = "capture.resumed" // the guest runs, files have yet to be written
	CaptureWritten Step = "capture.written" // all files are

	CreateReserved Step = "create.reserved" // the tag is taken
	CreateBooted   Step = "create.booted"   // the parent runs
	CreateSaved    Step = "create.saved"    // its memory is in files, and it is no more
	CreateDone     Step = "create.done"     // the snapshot is there

	ForkRestored  Step = "fork.restored"  // the child has its memory and waits
	ForkResumed   Step = "fork.resumed"   // it runs, and is not itself
	ForkConfirmed Step = "fork.confirmed" // it is itself, and nobody knows of it
	ForkRecorded  Step = "fork.recorded"  // the journal knows of it, the list does not

	PauseCaptured Step = "pause.captured" // the guest stands still, its disks in new files
	PauseWritten  Step = "pause.written"  // the snapshot is there
	PauseFlushed  Step = "pause.flushed"  // without memory: the guest stands still, its files on its disk
	PauseKept     Step = "pause.kept"     // without memory: its disk's layers are there, and held for it
	PauseRecorded Step = "pause.recorded" // the store knows of it: the sandbox is paused, its VM is nobody's

	ResumeRestored  Step = "resume.restored"  // the new VM has its memory, and runs
	ResumeBooted    Step = "resume.booted"    // the new VM has none to have, and has booted
	ResumeConfirmed Step = "resume.confirmed" // it is the sandbox, and nobody's
	ResumeRecorded  Step = "resume.recorded"  // its journal says so, and the store that the sandbox is paused
	ResumeHeld      Step = "resume.held"      // the store says so no more

	RollbackBegun     Step = "rollback.begun"     // the sandbox is reserved, nothing else has been done
	RollbackRestored  Step = "rollback.restored"  // the new VM has its memory, and runs
	RollbackConfirmed Step = "rollback.confirmed" // it is the sandbox, and nobody's
	RollbackRecorded  Step = "rollback.recorded"  // its journal says so, where it does not hold
	RollbackExchanged Step = "rollback.exchanged" // it holds, and the old VM is nobody's

	SpawnAsked    Step = "spawn.asked"    // in forkd-spawn, as those below: it has the request and its descriptors
	SpawnForked   Step = "spawn.forked"   // there is a process, which enters its jail
	SpawnExecuted Step = "spawn.executed" // it has its program, and the daemon does not know
)

// SpawnPrefix is that of steps which are passed with VMs in a jail only.
const SpawnPrefix = "spawn."

// Prefixes of the stores' steps, which are not listed: their own tests go through them.
const (
	LayerPrefix    = "layer."
	SnapshotPrefix = "snapshot."
)

// Steps are all that are named above.
func Steps() []Step {
	return []Step{
		BranchReserved, BranchFiles, BranchCaptured, BranchRunning, BranchWritten, BranchDone,
		CaptureBegun, CaptureRound, CapturePaused, CaptureHeld, CaptureResumed, CaptureWritten,
		CreateReserved, CreateBooted, CreateSaved, CreateDone,
		ForkRestored, ForkResumed, ForkConfirmed, ForkRecorded,
		PauseCaptured, PauseWritten, PauseFlushed, PauseKept, PauseRecorded,
		ResumeRestored, ResumeBooted, ResumeConfirmed, ResumeRecorded, ResumeHeld,
		RollbackBegun, RollbackRestored, RollbackConfirmed, RollbackRecorded, RollbackExchanged,
		SpawnAsked, SpawnForked, SpawnExecuted,
	}
}
