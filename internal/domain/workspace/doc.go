// Package workspace implements the original forkd's workspaces: a sandbox with a name chosen by its user. The
// user suspends and resumes it by that name, even after the daemon has restarted. The package owns the names and
// their file (docs/inside/formats/workspaces.md). Forking, pausing and resuming are done by the engine; each call
// is given the engine as visible to the caller. Beware: a Book knows each name's sandbox but not the sandbox's
// state, and asks for it each time. So a sandbox that ends in another way makes its workspace stale, and the Book
// is not notified.
package workspace
