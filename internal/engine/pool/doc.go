// Package pool keeps shells ready: VMs without a guest. A plain shell fits a shape; a prepared one
// is restored from a snapshot and waits at its start gate. The package refills the pools in the
// background and pauses while forks are running. It depends only on package launch, and opens
// snapshots with a function from the caller. A shell that was taken may already be dead, since its
// end can be noticed later.
package pool
