package vmm

// State of a VM.
type State string

const (
	StateShell    State = "shell"    // created, neither booted nor restored
	StatePrepared State = "prepared" // restored ahead of time, and has not run: still a shell
	StateArmed    State = "armed"    // restored; its vCPUs wait at a start gate
	StateRunning  State = "running"  // its vCPUs run
	StatePaused   State = "paused"
	StateStalled  State = "stalled" // it has paused itself until there is room for its disks
	StateExited   State = "exited"
)

// Idle tells whether a VM in this state has nothing to lose: it ends with its daemon.
func (s State) Idle() bool { return s == StateShell || s == StatePrepared }
