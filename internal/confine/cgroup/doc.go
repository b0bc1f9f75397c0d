// Package cgroup limits VMM processes with cgroup v2. It finds the part of the hierarchy delegated to the daemon,
// creates a group per VM, and reads a group's usage and the cause of OOM kills. It uses cgroupfs directly:
// containerd/cgroups would link systemd's D-Bus, eBPF and a logger for the same dozen files. It does not know
// VMs; package vmproc does. Beware: a process is started in its group and moved only to another tenant's group. A
// move waits for an RCU grace period (10 to 18 ms measured), and memory already charged to the process stays with
// the old group.
package cgroup
