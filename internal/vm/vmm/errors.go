package vmm

import "errors"

// Errors of a VM. They cross the control socket: errors.Is works in the daemon as in the VMM
// process.
var (
	// ErrGone reports that the process at the other end of the control socket has ended or hung up.
	ErrGone = errors.New("VMM process is gone")
	// ErrState reports that the VM's state does not allow the operation.
	ErrState = errors.New("VM is in the wrong state")
	// ErrPause reports that a capture was refused because its pause would have been too long.
	ErrPause = errors.New("the pause would be too long")
	// ErrNoRoom reports that the VM is stalled because the host has no room for its disks.
	ErrNoRoom = errors.New("the VM waits for room on the host")
	// ErrLost reports that a disk of the VM has lost writes.
	ErrLost = errors.New("a disk has lost writes")
)
