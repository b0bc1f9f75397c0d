// Package client is the daemon's end of forkd-spawn. It starts the process, replaces it when it has
// ended, learns which parts of a jail this host supports, and starts VMMs through it, as a
// client.Starter of package vmctl. It ends no VMM: the daemon does so with the descriptor it gets.
// An answer may arrive after its caller has gone, and then carries a process to kill.
package client
