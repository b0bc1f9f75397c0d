// Package netproc controls the process forkd-net for the engine. It starts the process in its own
// session, finds one started by an earlier daemon by its socket in the run directory, and speaks
// its control protocol as a sandbox.NetPort. It does not restart the process: package network calls
// Connect again when a connection has ended. The process outlives the daemon, so a process with
// other settings is shut down before a new one is started.
package netproc
