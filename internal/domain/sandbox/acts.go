package sandbox

import "time"

// Act is something that was done to a sandbox without a request of a client: the audit log has it.
type Act struct {
	Action string // as the audit log names it
	By     string // ByGuest and the others
	// Of is the sandbox; its Kin's key and its owner are whose act it is.
	Of    Info
	Count int    // children asked for
	Why   string // in words, where By does not say all
	Took  time.Duration
	Err   error // nil: it was done
}

// Acts is told what was done without a request. It keeps nobody waiting.
type Acts func(Act)

// Who acts where no client does.
const (
	ByGuest    = "guest"    // a program in the sandbox
	ByDeadline = "deadline" // of the sandbox's life
	ByIdleness = "idle"     // nobody used it for as long as its life says
	ByPressure = "pressure" // the host needs its memory
	ByHang     = "hang"     // its guest's kernel hangs
	ByUse      = "use"      // somebody wants something of it: traffic, or a request that has a line of its own
)

// Actions without a request. Those that requests have too have the same names.
const (
	ActFork     = "sandbox.fork"
	ActExit     = "sandbox.exit"
	ActKill     = "sandbox.kill"
	ActPause    = "sandbox.pause"
	ActResume   = "sandbox.resume"
	ActRollback = "sandbox.rollback"
)
