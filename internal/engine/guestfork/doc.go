// Package guestfork answers the guests that fork themselves, wait for their children and
// exit: it owns their calls to the host's port, the families (which child is whose, and
// which have ended and wait to be collected), the room that is reserved in a tree, and the
// end of the snapshots in between. It makes no snapshot and no sandbox: operations do, through
// the interface that is named here. Only package engine uses it. The trap: all that comes
// through the port is hostile, so that whatever is read, kept or begun for it has a limit.
package guestfork
