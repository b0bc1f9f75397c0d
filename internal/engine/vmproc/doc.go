// Package vmproc owns the VM processes. It spawns and adopts them, watches for their end, and keeps
// the overlay files of their disks. It writes a journal of each process, so that the next daemon
// finds it. It does not know what runs in a VM or which sandbox owns it: a dialer from the caller
// answers connections from the guest. A process outlives the daemon, so its data must not exist
// only in memory.
package vmproc
