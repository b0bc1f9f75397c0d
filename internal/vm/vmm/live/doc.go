// Package live is one live virtual machine: it assembles memory, vCPUs and
// devices on KVM, runs them, pauses, saves and restores. It is used by the
// process that package vmctl/client spawns and opens nothing by itself: every file
// comes in from outside. A Machine begins as a shell (a VM without content) and
// becomes a guest by Boot or Restore, once; its vCPUs, devices and disks are parts of it that
// know nothing of its states. The trap: the state of a vCPU may be
// touched only while its thread is parked.
package live
