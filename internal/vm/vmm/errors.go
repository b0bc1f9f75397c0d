package vmm

import "errors"

// Errors of a VM. They cross the control socket: errors.Is works in the daemon as in the VMM
// process.
var (
	// ErrGone is returned if the process at the other end of the control socket has ended or hung
	// up.
	ErrGone = errors.New("VMM process is gone")
	// ErrState is returned if the VM's state does not allow the operation.
	ErrState = errors.New("VM is in the wrong state")
	// ErrPause is returned for a capture refused because its pause would have been too long.
	ErrPause = errors.New("the pause would be too long")
	// ErrNoRoom is returned while the VM is stalled because the host has no room for its disks.
	ErrNoRoom = errors.New("the VM waits for room on the host")
	// ErrCut is returned for a capture whose consistent cut was broken: another member of the group has failed.
	ErrCut = errors.New("another sandbox of the group was not captured")
	// ErrLost is returned if a disk of the VM has lost writes.
	ErrLost = errors.New("a disk has lost writes")
)
