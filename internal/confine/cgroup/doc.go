// Package cgroup keeps VMM processes within limits by cgroup v2: it finds the part of the
// hierarchy that was delegated to the daemon, makes a group per VM, and reads what a group
// uses and why a process in it was killed. It speaks cgroupfs directly: containerd/cgroups
// would link systemd's D-Bus, eBPF and a logger for the same dozen files. It does not know
// what a VM is; package vmproc does. The trap: a process is started in its group, and is moved
// only to another tenant's, since a move waits for an RCU grace period (10 to 18 ms measured)
// and leaves the memory that the process has already charged to where it came from.
package cgroup
