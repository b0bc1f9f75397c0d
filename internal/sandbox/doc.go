// Package sandbox is the domain: snapshots are made from booted parents, and
// sandboxes are forked from snapshots. It owns every VM process (from spawn, or
// from adoption after a daemon's restart, to its end), the pools of shells, and
// the run directory. It names no transport: httpapi puts HTTP over it. The trap:
// a sandbox is listed as running only after its agent confirmed the new identity.
package sandbox
