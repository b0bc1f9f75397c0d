// Package launch makes one VM from a snapshot: it restores it into a process (Restore,
// Launch) or does all of that but the start ahead of time (Prepare), maps what it will touch
// (Populate), and gives its guest an identity (Identify). It decides whether the host
// has memory for one more (Memory). It knows no sandboxes and no tags' states: an open
// snapshot comes in as a Source. The trap: who gets a VM owns it, and ends it with
// Discard of this package's VM, which frees its gate too.
package launch
