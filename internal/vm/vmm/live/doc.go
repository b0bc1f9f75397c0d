// Package live runs one virtual machine: it assembles memory, vCPUs and devices on KVM, and runs,
// pauses, saves and restores them. The process spawned by package vmctl/client uses it. The package
// opens no files by itself: every file comes from outside.
//
// A Machine begins as a shell (a VM without content) and becomes a guest once, by Boot or Restore.
// Its vCPUs, devices and disks do not know its states. The state of a vCPU may be accessed only
// while its thread is parked.
package live
