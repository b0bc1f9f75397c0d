// Package sandboxes has the routes of sandboxes: fork, life, branch, rollback, promotion, comparison, labels,
// network policy, console, and workspaces, which are sandboxes under names. A Mover takes paused sandboxes from
// other daemons. The package decides nothing about a sandbox; it converts requests and calls the caller's part
// of the engine.
package sandboxes
