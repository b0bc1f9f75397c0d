package vmm

// State is the state of a VM.
type State string

const (
	StateShell    State = "shell"    // created, neither booted nor restored
	StatePrepared State = "prepared" // restored ahead of time and not run yet; still a shell
	StateArmed    State = "armed"    // restored; its vCPUs wait at a start gate
	StateRunning  State = "running"  // its vCPUs run
	StatePaused   State = "paused"
	StateStalled  State = "stalled" // paused itself until the host has room for its disks
	StateExited   State = "exited"
)

// Idle reports whether a VM in this state has no guest to lose. Such a VM ends with its daemon.
func (s State) Idle() bool { return s == StateShell || s == StatePrepared }
