// Package op has the engine's operations: create, fork, branch, rollback, derive, compact
// and diff, one file each (a branch's disks and memory, and what several share, have
// files of their own), and the receipts that they leave. It keeps nothing: tags are the
// catalog's, sandboxes package sandboxes', VMs package launch's. The trap: an operation is
// admitted with Begin first, or Close does not wait for it.
package op
