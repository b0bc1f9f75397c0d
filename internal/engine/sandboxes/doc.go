// Package sandboxes keeps the list of sandboxes: which VM is whose, what the journal says
// of each, and what becomes of one that fails, is killed, adopted or rolled back. It
// makes no VM: one that runs and has confirmed its identity comes in with Add. What
// other rooms do when a sandbox comes or goes they give as functions (Events). States
// are in states.go. The trap: two locks, in this order: Sandbox.files, which is held
// across I/O, then Table.mu, which never is.
package sandboxes
