package sandbox

import "time"

// Op names an operation for an Observer.
type Op string

// Observed operations.
const (
	OpBoot     Op = "boot"
	OpSave     Op = "save"
	OpBranch   Op = "branch"   // its pause
	OpRollback Op = "rollback" // one request
	OpPause    Op = "pause"    // one request
	OpResume   Op = "resume"   // one request
	OpFork     Op = "fork"     // one request, all children
	OpRestore  Op = "restore"  // one child, shell included
	OpIdentity Op = "identity" // one child
	OpExec     Op = "exec"
	OpEval     Op = "eval"
)

// Observer receives the duration of operations. It must not block.
type Observer interface {
	Observe(op Op, took time.Duration, err error)
}
