// Package launch makes one VM from a snapshot. It restores the snapshot into a process and runs it
// (Launch). Alternatively the VM waits at its start gate until Enter (LaunchArmed, or Prepare ahead
// of time). The package populates the VM's working set (Populate) and gives its guest an identity
// (Identify). It knows no sandboxes and no tags: the caller passes an open snapshot as a Source.
// The caller that gets a VM owns it, and ends it with this package's Discard, which also frees its
// gate.
package launch
