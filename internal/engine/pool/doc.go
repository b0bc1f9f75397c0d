// Package pool keeps shells ready: VMs without a guest, plain ones that fit a shape and
// prepared ones that are restored from one snapshot up to their start gate. It refills
// itself in the background and stands back while forks are under way. It needs package
// launch only; snapshots it opens with a function that comes in from outside. The trap:
// a shell that was taken may be dead already, since its end can be noticed later.
package pool
