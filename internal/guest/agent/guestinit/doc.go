// Package guestinit is what the agent does as PID 1 before it serves: mounts,
// kernel modules, the root file system, the loopback interface and the network device. It owns the
// guest's boot from the kernel's hand-over to the call of serve, and the
// machine's end; it serves nothing. Only cmd/forkd-agent calls it. The trap: an
// init that returns panics the kernel without a word about why, so every
// failure is written to the console first and then restarts the machine, which
// the VMM sees as its end.
package guestinit
