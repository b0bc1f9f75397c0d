// Package op implements the engine's operations: create, fork, branch, rollback, derive, compact
// and diff. Each has a file; a branch's disks and memory, and shared code, have separate files. The
// package also writes the receipts of operations. It has no state: package catalog holds the tags,
// package sandboxes the sandboxes, and package launch the VMs. An operation must call Begin first,
// or Close does not wait for it.
package op
