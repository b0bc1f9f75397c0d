// Package client is forkd-spawn as the daemon sees it: it starts that process, and another one
// when it has ended, learns which parts of a jail this host can do, and has VMMs started in it, as
// a client.Starter of package vmctl. It ends no VMM: the daemon does, by the descriptor that
// it gets. The trap: an answer may come after its caller has gone, and then has a process with it.
package client
