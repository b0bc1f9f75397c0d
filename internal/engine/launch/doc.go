// Package launch makes one VM from a snapshot: it restores it into a process and lets
// it run (Launch), or wait at a gate of its own (LaunchArmed; Prepare: ahead of time) until
// Enter; it maps what it will touch (Populate) and gives its guest an identity (Identify). It decides whether the host
// has memory for one more (Memory). It knows no sandboxes and no tags' states: an open
// snapshot comes in as a Source. The trap: who gets a VM owns it, and ends it with
// Discard of this package's VM, which frees its gate too.
package launch
