// Package server is forkd-spawn: it starts VMM processes in a jail for the daemon at the
// other end of a socket, tells when they end, and what of a jail this host can do. It
// starts nothing else, and keeps nothing: VMMs outlive it, and another forkd-spawn begins where
// this one ended. Init is the other half, in the process that becomes the VMM. The
// trap: it has one processor for Go code (package client says so), so a system call that waits, waits for all.
package server
