// Package server is forkd-spawn: it starts VMM processes in a jail for the daemon at the
// other end of a socket, tells when they end, and what of a jail this host can do. It
// starts nothing else, and keeps nothing: VMMs outlive it, and another forkd-spawn begins where
// this one ended. Init is the other half, in the process that becomes the VMM. The
// trap: what a child inherits is that of one thread, which has the shared network namespace.
package server
