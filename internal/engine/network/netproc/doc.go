// Package netproc is the process forkd-net as the engine sees it: it starts it in a session of
// its own, finds the one that an earlier daemon started by its socket in the run directory,
// and speaks its control protocol as a sandbox.NetPort. It keeps nothing alive: package network
// calls Connect again when a connection has ended. The trap: the process outlives the daemon,
// so one that was started with other settings is shut down before a new one is started.
package netproc
