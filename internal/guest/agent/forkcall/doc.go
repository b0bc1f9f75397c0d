// Package forkcall is the guest's side of forks that a guest makes of itself. Programs call over a
// Unix socket. Each call gets its own connection to the host, and the answer returns the same way.
// The package keeps the calls in progress and completes them if the guest is cloned meanwhile: the
// host answers in the original, this package in the clones. The agent runs one Server.
//
// In a clone, the connection to the host breaks before the identity arrives. Only the guest's
// address distinguishes this from a failed host; see package generation.
package forkcall
