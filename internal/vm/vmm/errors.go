package vmm

import "errors"

// Errors of a VM. They hold on both sides of the control socket: an error of the
// VMM process answers errors.Is in the daemon as it does there.
var (
	// ErrGone: the process at the other end of the control socket has ended or hung up.
	ErrGone = errors.New("VMM process is gone")
	// ErrState: the VM is not in a state that allows the operation.
	ErrState = errors.New("VM is in the wrong state")
	// ErrPause: a capture was not made because its pause would have been too long.
	ErrPause = errors.New("the pause would be too long")
	// ErrNoRoom: the VM stands still because the host has no room for its disks.
	ErrNoRoom = errors.New("the VM waits for room on the host")
	// ErrLost: a disk of the VM has lost writes.
	ErrLost = errors.New("a disk has lost writes")
)
