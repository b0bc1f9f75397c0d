// Package sandboxes keeps the list of sandboxes: the VM of each, its journal record, and its
// transitions on failure, kill, adoption and rollback. It creates no VMs: a running VM whose guest
// has confirmed its identity is added with Add. Other packages react to added and ended sandboxes
// through functions (Events). The states are in states.go. There are two locks, taken in this
// order: Sandbox.files, which is held across I/O, then Table.mu, which never is.
package sandboxes
