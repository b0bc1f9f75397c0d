package failpoint

// Step is a point at which an operation may be interrupted.
type Step string

// The steps, by operation. Each one is used in exactly one call of Here (test/arch), and the crash tests cover
// all of them (test/crash). The stores have additional steps, which the crash tests discover while running.
const (
	BranchReserved Step = "branch.reserved" // the tag is taken
	BranchFiles    Step = "branch.files"    // the files for the capture exist
	BranchCaptured Step = "branch.captured" // the sandbox runs again with new overlay files
	BranchRunning  Step = "branch.running"  // the overlay files have their names from the journal
	BranchWritten  Step = "branch.written"  // the capture is written to its files
	BranchDone     Step = "branch.done"     // the snapshot exists

	CaptureBegun   Step = "capture.begun"   // in the VMM, like the following: the guest runs, copying has not begun
	CaptureRound   Step = "capture.round"   // one round of copying is done
	CapturePaused  Step = "capture.paused"  // the guest is paused
	CaptureHeld    Step = "capture.held"    // the rest is copied to memory, the disks use new overlay files
	CaptureResumed Step = "capture.resumed" // the guest runs, the files are not written yet
	CaptureWritten Step = "capture.written" // all files are written

	CreateReserved Step = "create.reserved" // the tag is taken
	CreateBooted   Step = "create.booted"   // the parent runs
	CreateSaved    Step = "create.saved"    // its memory is in files, and the parent VM is gone
	CreateDone     Step = "create.done"     // the snapshot exists

	ForkRestored  Step = "fork.restored"  // the child has its memory and waits at the gate
	ForkResumed   Step = "fork.resumed"   // it runs, without its own identity
	ForkConfirmed Step = "fork.confirmed" // its identity is confirmed, but not recorded
	ForkRecorded  Step = "fork.recorded"  // it is in the journal, but not in the list

	GroupCaptured Step = "group.captured" // each member of the group has a snapshot
	GroupNetworks Step = "group.networks" // the copies' networks exist, marked as incomplete
	GroupForked   Step = "group.forked"   // their sandboxes are listed, and the networks still incomplete

	PauseCaptured Step = "pause.captured" // the guest is paused, its disks use new overlay files
	PauseWritten  Step = "pause.written"  // the snapshot exists
	PauseFlushed  Step = "pause.flushed"  // without memory: the guest is paused, its files are synced
	PauseKept     Step = "pause.kept"     // without memory: its disk's layers exist and are pinned
	PauseRecorded Step = "pause.recorded" // the store has recorded the pause; the VM is orphaned

	ResumeRestored  Step = "resume.restored"  // the new VM has its memory, and runs
	ResumeBooted    Step = "resume.booted"    // the new VM was booted, for a sandbox without memory
	ResumeConfirmed Step = "resume.confirmed" // it has the sandbox's identity, but is not recorded
	ResumeRecorded  Step = "resume.recorded"  // its journal says so, but the store says the sandbox is paused
	ResumeHeld      Step = "resume.held"      // the store no longer says it is paused

	MoveCopied   Step = "move.copied"   // the taker has the snapshot, and no record of the sandbox
	MoveAsked    Step = "move.asked"    // the taker has recorded its claim
	MoveGiven    Step = "move.given"    // the giver has recorded the claim, and lists the sandbox
	MoveAnswered Step = "move.answered" // the giver has answered; the taker's record has no effect yet
	MoveTaken    Step = "move.taken"    // the taker's record is in effect

	RollbackBegun     Step = "rollback.begun"     // the sandbox is reserved, the rest is still to do
	RollbackRestored  Step = "rollback.restored"  // the new VM has its memory, and runs
	RollbackConfirmed Step = "rollback.confirmed" // it has the sandbox's identity, but is not recorded
	RollbackRecorded  Step = "rollback.recorded"  // its journal says so, in a place without effect
	RollbackExchanged Step = "rollback.exchanged" // it is in effect, and the old VM is orphaned

	SpawnAsked    Step = "spawn.asked"    // in forkd-spawn, like the following: it has the request and its descriptors
	SpawnForked   Step = "spawn.forked"   // the process exists and enters its jail
	SpawnExecuted Step = "spawn.executed" // it executes its program, but the daemon does not know yet
)

// SpawnPrefix begins the steps that occur only for VMs in a jail.
const SpawnPrefix = "spawn."

// Prefixes of the stores' steps. They are not listed here; the stores' own tests cover them.
const (
	LayerPrefix    = "layer."
	SnapshotPrefix = "snapshot."
	VolumePrefix   = "volume."
)

// Steps returns all steps listed above.
func Steps() []Step {
	return []Step{
		BranchReserved, BranchFiles, BranchCaptured, BranchRunning, BranchWritten, BranchDone,
		CaptureBegun, CaptureRound, CapturePaused, CaptureHeld, CaptureResumed, CaptureWritten,
		CreateReserved, CreateBooted, CreateSaved, CreateDone,
		ForkRestored, ForkResumed, ForkConfirmed, ForkRecorded,
		GroupCaptured, GroupNetworks, GroupForked,
		PauseCaptured, PauseWritten, PauseFlushed, PauseKept, PauseRecorded,
		ResumeRestored, ResumeBooted, ResumeConfirmed, ResumeRecorded, ResumeHeld,
		MoveCopied, MoveAsked, MoveGiven, MoveAnswered, MoveTaken,
		RollbackBegun, RollbackRestored, RollbackConfirmed, RollbackRecorded, RollbackExchanged,
		SpawnAsked, SpawnForked, SpawnExecuted,
	}
}
