// Package guestinit is the agent's work as PID 1 before it serves: mounts, kernel modules, the root
// file system, the loopback interface and the network device. It covers the guest's boot from the
// kernel's hand-over to the call of serve, and the end of the VM. Only cmd/forkd-agent calls it.
//
// If init returns, the kernel panics without a reason. So every failure is first written to the
// console and then restarts the VM. The VMM sees the restart as the end of the VM.
package guestinit
