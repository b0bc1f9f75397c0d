package sandbox

import "time"

// Act is an operation on a sandbox without a client's request, for the audit log.
type Act struct {
	Action string // as in the audit log
	By     string // one of ByGuest, ByDeadline, ...
	// Of is the sandbox. The act is attributed to its owner and to the key in its Kin.
	Of    Info
	Count int    // children asked for
	Why   string // an explanation, if By is not enough
	Took  time.Duration
	Err   error // nil on success
}

// Acts reports an operation without a request. It must not block.
type Acts func(Act)

// Values of Act.By.
const (
	ByGuest    = "guest"    // a program in the sandbox
	ByDeadline = "deadline" // of the sandbox's life
	ByIdleness = "idle"     // the sandbox was idle for the time set in its Life
	ByPressure = "pressure" // the host needs its memory
	ByDrain    = "drain"    // the operator drains the daemon
	ByHang     = "hang"     // its guest's kernel hangs
	ByUse      = "use"      // traffic, or a request with a separate connection
	// ByRetention is a rule of a snapshot's labels. Of has its owner and its tag.
	ByRetention = "retention"
)

// Actions without a request. An action that a client can request has the same name there.
const (
	ActFork     = "sandbox.fork"
	ActExit     = "sandbox.exit"
	ActKill     = "sandbox.kill"
	ActPause    = "sandbox.pause"
	ActResume   = "sandbox.resume"
	ActRollback = "sandbox.rollback"
	ActDelete   = "snapshot.delete"
)
